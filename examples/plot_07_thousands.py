"""
Thousands of tasks
==================

For spectral structures, such as the trace, the paper's last theorem allows a structure on the features instead of the tasks.
Then no matrix of size *tasks x tasks* is needed, the tasks separate in each step, and the cost is linear in their number.
``solver="auto"`` chooses the cheaper side.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor

d, rows = 20, 15  # fewer rows than inputs


def many_tasks(T, rng):
    """Targets, inputs and task of each row, for T tasks with coefficients of rank three."""
    W = rng.normal(size=(d, 3)) @ rng.normal(size=(3, T))
    X = rng.normal(size=(T * rows, d))
    task = np.repeat(np.arange(T), rows)
    y = np.einsum("ij,ij->i", X, W[:, task].T) + 0.5 * rng.normal(size=task.size)
    return X, y, task, W


# %%
# More and more tasks, with the same number of rows each. ``alpha`` grows in proportion to the number of tasks.

sizes = [50, 100, 250, 500, 1000, 2000]
seconds, errors = [], []
for T in sizes:
    X, y, task, W = many_tasks(T, np.random.default_rng(0))
    model = MultiTaskRegressor("trace", alpha=0.02 * T, task_column=-1, fit_intercept=False, tol=1e-5)
    model.fit(np.column_stack([X, task]), y)
    seconds.append(model.history_["seconds"][-1])
    errors.append(np.mean((model.coef_.T - W) ** 2) / np.mean(W**2))
    print(f"{T:5d} tasks: relative duality gap {model.certificate_.relative_gap:.0e}, error of coefficients {errors[-1]:.2%}")

# %%
# The dotted line is proportional to the number of tasks. The error falls: with more tasks the common subspace is estimated
# better.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].loglog(sizes, seconds, marker="o", label="to a duality gap of 1e-5")
axes[0].loglog(sizes, seconds[-1] * np.array(sizes) / sizes[-1], color="0.5", linestyle=":", label="linear")
axes[0].set(title="Time", xlabel="tasks", ylabel="seconds, on the machine that built this page")
axes[0].legend()
axes[1].semilogx(sizes, errors, marker="o", color="tab:green")
axes[1].set(title="Error of the coefficients", xlabel="tasks", ylabel="relative squared error", ylim=(0, None))
for ax in axes:
    ax.set_xticks(sizes, [str(T) for T in sizes])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
plt.show()

# %%
# The singular values of the coefficients show that the estimated rank is three.

size = np.linalg.svd(model.coef_, compute_uv=False)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.bar(np.arange(1, d + 1), size, color=["tab:green"] * 3 + ["0.6"] * (d - 3))
ax.set(title=f"{sizes[-1]} tasks, {d} inputs", xlabel="index", ylabel="singular value of the coefficients")
plt.show()
