"""
Did it converge?
================

Most solvers stop when their iterates change little. That can mean convergence, or slow progress. Every fit of taskloom
has an upper and a lower bound of the minimum instead.
"""

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskRegressor
from taskloom.solvers import Alternating

rng = np.random.default_rng(0)
rows, d, T = 12, 40, 40  # forty tasks with task-specific inputs, coefficients of rank two
W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T))
task = np.repeat(np.arange(T), rows)
X = rng.normal(size=(T * rows, d))
y = np.einsum("ij,ij->i", X, W[:, task].T) + 0.1 * rng.normal(size=len(X))
table = np.column_stack([X, task])

# %%
# The same problem three times: to a relative gap of 1e-8; stopped after eight iterations; and by the paper's Algorithm 1
# as printed, which stops when its objective changes little.

as_printed = Alternating(delta=1e-3, A0=np.eye(T), stop="change")
settings = {
    "converged": {"tol": 1e-8},
    "stopped after 8": {"tol": 1e-8, "max_iter": 8},
    "Algorithm 1": {"solver": as_printed, "tol": 1e-4},
}
models = {}
for name, options in settings.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # we stop early on purpose
        models[name] = MultiTaskRegressor("trace", alpha=1.0, task_column=-1, **options).fit(table, y)
    print(textwrap.fill(f"{name}: {models[name].certificate_.message}", 100), "\n")

# %%
# On the left the objective and the dual value; the minimum lies between them. On the right the duality gap and the true
# distance from the minimum, for Algorithm 1. The gap is always an upper bound of the distance.

best = models["converged"].certificate_.primal
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
seen = models["converged"].history_
left.fill_between(seen["iteration"], seen["dual"], seen["objective"], alpha=0.2)
left.plot(seen["iteration"], seen["objective"], marker="o", markersize=3, label="objective (primal)")
left.plot(seen["iteration"], seen["dual"], marker="o", markersize=3, label="dual value")
left.axvline(8, color="tab:red", linestyle=":", label="stopped here")
left.set(title="The minimum lies in the shaded area", xlabel="iteration", ylim=(0.7 * best, 1.4 * best))
left.legend()

seen = models["Algorithm 1"].history_
away, change = (seen["objective"] - best) / best, np.abs(np.diff(seen["objective"])) / best
right.semilogy(seen["iteration"], seen["gap"] / best, label="duality gap")
right.semilogy(seen["iteration"], away, label="distance from the minimum")
right.semilogy(seen["iteration"][1:], change, color="0.6", label="change of the objective")
right.set(title="Algorithm 1 as printed", xlabel="iteration", ylabel="relative to the objective")
right.legend()
plt.show()

print(f"Algorithm 1 stopped {away[-1]:.1%} above the minimum")
