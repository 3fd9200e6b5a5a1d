"""
Thousands of tasks
==================

For structures of eigenvalues, such as the trace, the paper's last theorem lets the structure sit on the features
instead of the tasks. Then nothing of size *tasks x tasks* is needed on the way, the tasks decouple in each step, and
the cost grows in proportion to their number. ``solver="auto"`` chooses that side by itself.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor

d, rows = 20, 15  # fewer rows than inputs: no task can be learned alone


def many_tasks(T, rng):
    """Targets, inputs and task of each row, for T tasks that have three directions in common."""
    W = rng.normal(size=(d, 3)) @ rng.normal(size=(3, T))
    X = rng.normal(size=(T * rows, d))
    task = np.repeat(np.arange(T), rows)
    y = np.einsum("ij,ij->i", X, W[:, task].T) + 0.5 * rng.normal(size=task.size)
    return X, y, task, W


# %%
# The number of tasks doubles and doubles again, at the same number of rows for each. The strength grows with the number
# of tasks, as the noise in what they have in common does.

sizes = [50, 100, 250, 500, 1000, 2000]
seconds, errors = [], []
for T in sizes:
    X, y, task, W = many_tasks(T, np.random.default_rng(0))
    model = MultiTaskRegressor("trace", alpha=0.02 * T, task_column=-1, fit_intercept=False, tol=1e-5)
    model.fit(np.column_stack([X, task]), y)
    seconds.append(model.history_["seconds"][-1])
    errors.append(np.mean((model.coef_.T - W) ** 2) / np.mean(W**2))
    print(
        f"{T:5d} tasks: optimum proved to {model.certificate_.relative_gap:.0e}, weights off by {errors[-1]:.2%} of their size"
    )

# %%
# The dotted line is time in proportion to the number of tasks. The error falls: the more tasks, the better the directions
# that they share are known.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].loglog(sizes, seconds, marker="o", label="to a proved gap of 1e-5")
axes[0].loglog(sizes, seconds[-1] * np.array(sizes) / sizes[-1], color="0.5", linestyle=":", label="in proportion")
axes[0].set(title="Time", xlabel="tasks", ylabel="seconds, on the machine that built this page")
axes[0].legend()
axes[1].semilogx(sizes, errors, marker="o", color="tab:green")
axes[1].set(title="Error of the weights", xlabel="tasks", ylabel="relative squared error", ylim=(0, None))
for ax in axes:
    ax.set_xticks(sizes, [str(T) for T in sizes])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
plt.show()

# %%
# The singular values of the weights show the three common directions, found without being told how many there are.

size = np.linalg.svd(model.coef_, compute_uv=False)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.bar(np.arange(1, d + 1), size, color=["tab:green"] * 3 + ["0.6"] * (d - 3))
ax.set(
    title=f"{sizes[-1]} tasks, {d} inputs: what they have in common", xlabel="direction", ylabel="singular value of the weights"
)
plt.show()
