"""Shared inputs and kernels: a certified fit in units of one ``eigh`` of the kernel matrix; complete, and half of it missing.

    python benchmarks/shared_inputs.py [--quick] [--threads 1] [--sizes 500 2000 5000] [--tasks 7 50 200] [--gammas 0.02 0.2]

Inputs of five dimensions, an rbf kernel: smooth (gamma 0.02, whose spectrum decays fast) and rough (gamma 0.2, which is far
from singular). The strength is a share of the one at which the trace penalty learns nothing. Beside the fit: a
further strength on the same data, as ``path`` solves it (weights, structure and certificate), and with 50 tasks, below 5000
rows, the same fit by each of the solvers that ``"auto"`` did not pick, as long as that took: ``fit / best solver`` is 1 where
none is faster.

Then everyone chooses for himself: ours, scikit-learn's ``KernelRidge`` and himalaya's each fit 8 strengths on the same four
fifths of the rows, take the best on the last fifth and fit it on all rows; "fit s" is all of that. GPyTorch's multitask exact
Gaussian process has the same length scale and learns the tasks' covariance (rank 4) and the noise, by Adam steps on the
likelihood: as many (at most 50) as ``--peer-limit`` seconds allow, on up to 10 000 outputs (``n T``). With gaps, scikit-learn
fits task by task, and nobody chooses from 300 000 outputs on. ``R2`` is that of new rows against the noiseless targets, by one
function for all of them. A small fit before all others loads what is loaded once.
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"]  # before numpy is imported

import argparse
import importlib.util
import time
import warnings
from typing import Any

import numpy as np
from output import cpu, write
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor, path, solve

THREADS = int(os.environ["OMP_NUM_THREADS"])
TOL, SHARES, D = 1e-6, (0.1, 0.01), 5
STEPS, ALPHAS = np.logspace(-1, -6.25, 8), np.logspace(1, -4.25, 8)  # what is chosen from: shares of the top; ridges
SMALL = 1000  # rows below which work is done three times, and not twice
LARGE = 5000  # rows from which on a decomposition is measured once, and named solvers are not
ONE_BY_ONE = 300_000  # outputs in all, from which on a system for each task and strength takes many minutes
DENSE = 10_000  # outputs in all, beyond which the covariance matrix of a Gaussian process of all of them fills the memory
LEAST_STEPS = 5  # of Adam, below which there is nothing to predict with


def data(n: int, n_tasks: int, missing: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n + n_tasks)
    X = rng.normal(size=(n + 500, D))
    truth = np.sin(X @ rng.normal(size=(D, 4))) @ rng.normal(size=(4, n_tasks))
    Y = truth[:n] + 0.3 * rng.normal(size=(n, n_tasks))
    Y[rng.random(Y.shape) < missing] = np.nan
    return {"X": X[:n], "Y": Y, "X_new": X[n:], "truth": truth[n:]}


def r2(truth: np.ndarray, found: np.ndarray) -> float:
    return float(1 - np.mean((truth - found) ** 2, axis=0).sum() / truth.var(axis=0).sum())


def top_strength(K: np.ndarray, Y: np.ndarray) -> float:
    """The strength at which the trace penalty learns nothing: the largest eigenvalue of ``Z'Z / 4`` at the means."""
    G = 2 * np.nan_to_num(Y - np.nanmean(Y, axis=0)) / np.isfinite(Y).sum(axis=0)
    return float(np.linalg.eigvalsh(G.T @ K @ G)[-1]) / 4


def cell(n: int, n_tasks: int, gamma: float, missing: float, structure: str, share: float, eigh: float) -> dict[str, Any]:
    some = data(n, n_tasks, missing)
    K = rbf_kernel(some["X"], gamma=gamma)
    alpha = share * top_strength(K, some["Y"])
    model = MultiTaskRegressor(structure, kernel="rbf", gamma=gamma, alpha=alpha, tol=TOL)
    beside = [cpu(lambda: np.linalg.eigh(K))[0] for _ in range(repeats(n))]  # the machine is not the same a minute later
    seconds = fitted_in(model, some)
    eigh = min([*beside, *(cpu(lambda: np.linalg.eigh(K))[0] for _ in range(min(repeats(n), 1)))], default=eigh)
    row = {"n": n, "T": n_tasks, "gamma": gamma, "missing": missing, "structure": structure, "share": share, "eigh s": eigh}
    row |= {"fit s": seconds, "fit / eigh": seconds / eigh, "iterations": model.n_iter_}
    row |= {"relative gap": model.certificate_.relative_gap, "R2": r2(some["truth"], model.predict(some["X_new"]))}
    problem = model._prepare(some["X"], some["Y"]).problem
    first = solve(problem, tol=TOL)  # leaves what is computed from the data alone
    further, again = cpu(lambda: solve(problem.at(0.6 * alpha), tol=TOL, start=(first.W, first.b)))
    row |= {"further / fit": further / seconds, "further / eigh": further / eigh, "further gap": again.certificate.relative_gap}
    if n_tasks == 50 and n < LARGE:
        names = [name for name in ("alternating", "block", "factored", "proximal") if name != again.solver]
        others = [other_solver(model, name, some, seconds) for name in names]
        row["fit / best solver"] = seconds / min([seconds, *(each for each in others if each is not None)])
    return row


def repeats(n: int) -> int:
    """How often work on ``n`` rows is repeated; none where it takes many seconds."""
    return 3 if n < SMALL else 2 if n < LARGE else 0


def fitted_in(model: MultiTaskRegressor, some: dict[str, np.ndarray]) -> float:
    """CPU seconds of a fit, the least of several where it takes no time: memory is new to the first, others only ever add."""
    return min(cpu(lambda: model.fit(some["X"], some["Y"]))[0] for _ in range(2 * repeats(len(some["X"])) or 1))


def other_solver(model: MultiTaskRegressor, solver: str, some: dict[str, np.ndarray], limit: float) -> float | None:
    """CPU seconds of the same fit by a named solver; ``None`` if it does not arrive within the limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        other = clone(model).set_params(solver=solver, max_iter=20_000, time_limit=1.2 * limit)
        first = cpu(lambda: other.fit(some["X"], some["Y"]))[0]
        return min(first, fitted_in(other, some)) if other.certificate_.optimal else None


def peers(n: int, n_tasks: int, gamma: float, missing: float, eigh: float, limit: float) -> list[dict[str, Any]]:
    """Everyone's own choice of the strength, by the same split; nobody's where there is nobody to compare with."""
    if missing and n * n_tasks >= ONE_BY_ONE:
        return []
    some = data(n, n_tasks, missing)
    X, Y, X_new = some["X"], some["Y"], some["X_new"]
    split = np.arange(n) < n - n // 5, np.arange(n) >= n - n // 5
    methods = {f"{name}, chosen": lambda name=name: ours(name, X, Y, X_new, gamma, split) for name in ("trace", "frobenius")}
    methods["scikit-learn KernelRidge, chosen"] = lambda: by_scikit(X, Y, X_new, gamma, split)
    if not missing and importlib.util.find_spec("himalaya"):
        methods["himalaya KernelRidgeCV, chosen"] = lambda: by_himalaya(X, Y, X_new, gamma, split)
    if not missing and n * n_tasks <= DENSE and importlib.util.find_spec("gpytorch"):
        methods["GPyTorch multitask"] = lambda: by_gpytorch(X, Y, X_new, gamma, limit)
    rows = []
    for name, method in methods.items():
        seconds, (found, chosen) = cpu(method)
        row = {"n": n, "T": n_tasks, "gamma": gamma, "missing": missing, "structure": name, "eigh s": eigh}
        row |= {"fit s": seconds, "fit / eigh": seconds / eigh, "chosen": chosen}
        rows.append(row | {"R2": None if found is None else r2(some["truth"], found)})
        print(rows[-1], flush=True)
    return rows


Split = tuple[np.ndarray, np.ndarray]


def ours(structure: str, X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, gamma: float, split: Split) -> tuple[np.ndarray, Any]:
    learn, judge = split
    top = top_strength(rbf_kernel(X, gamma=gamma), Y)
    prepared = MultiTaskRegressor(structure, kernel="rbf", gamma=gamma, alpha=top * STEPS[0])._prepare(X[learn], Y[learn])
    solutions = path(prepared.problem, top * STEPS, tol=1e-4)
    K = rbf_kernel(X[judge], X[learn], gamma=gamma)
    errors = [np.nanmean((Y[judge] - K @ prepared.features.dual_coef(one.W) - one.b) ** 2) for one in solutions]
    chosen = float(STEPS[int(np.argmin(errors))])
    again = MultiTaskRegressor(structure, kernel="rbf", gamma=gamma, alpha=top * chosen).fit(X, Y)
    return again.predict(X_new), f"{chosen:.2g} of the top"


def by_scikit(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, gamma: float, split: Split) -> tuple[np.ndarray, Any]:
    """Columns together where all outputs are there, one by one where they are not; no intercepts, so targets are centred."""
    learn, judge = split

    def fitted(rows: np.ndarray, alpha: float, inputs: np.ndarray) -> np.ndarray:
        if not np.isnan(Y).any():
            return KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X[rows], Y[rows] - mean).predict(inputs) + mean
        seen = [rows & ~np.isnan(y) for y in Y.T]
        fits = [KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X[s], (Y - mean)[s, t]) for t, s in enumerate(seen)]
        return np.column_stack([fit.predict(inputs) for fit in fits]) + mean

    mean = np.nanmean(Y, axis=0)
    errors = [np.nanmean((Y[judge] - fitted(learn, alpha, X[judge])) ** 2) for alpha in ALPHAS]
    chosen = float(ALPHAS[int(np.argmin(errors))])
    return fitted(np.ones(len(X), dtype=bool), chosen, X_new), f"{chosen:.2g}"


def by_himalaya(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, gamma: float, split: Split) -> tuple[np.ndarray, Any]:
    """It chooses a strength for each output."""
    from himalaya.backend import set_backend
    from himalaya.kernel_ridge import KernelRidgeCV
    from sklearn.model_selection import PredefinedSplit

    set_backend("numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds, mean = PredefinedSplit(np.where(split[1], 0, -1)), Y.mean(axis=0)
        model = KernelRidgeCV(alphas=ALPHAS, kernel="rbf", kernel_params={"gamma": gamma}, cv=folds).fit(X, Y - mean)
        return model.predict(X_new) + mean, f"{np.median(model.best_alphas_):.2g} (median)"


def by_gpytorch(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, gamma: float, limit: float) -> tuple[np.ndarray | None, Any]:
    import gpytorch
    import torch

    torch.set_num_threads(THREADS)
    T = Y.shape[1]
    inputs, targets, new = (torch.as_tensor(a) for a in (X, Y - Y.mean(axis=0), X_new))

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any):
            super().__init__(inputs, targets, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=T)
            self.covar_module = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), num_tasks=T, rank=4)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.manual_seed(0)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=T).double()
    model = Model(likelihood).double()
    model.covar_module.data_covar_module.lengthscale = (2 * gamma) ** -0.5
    model.covar_module.data_covar_module.raw_lengthscale.requires_grad_(False)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    began = time.process_time()
    for step in range(1, 51):
        optimiser.zero_grad()
        loss = -objective(model(inputs), targets)
        loss.backward()
        optimiser.step()
        if (time.process_time() - began) * (step + 2) / step > limit:  # predictions take about as long as two steps
            break
    if step < LEAST_STEPS:
        return None, f"stopped at the limit of {limit:g} s after {step} step(s) of Adam"
    model.eval()
    with torch.no_grad():
        return model(new).mean.numpy() + Y.mean(axis=0), f"{step} steps of Adam"


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    ours = [row for row in rows if "share" in row]
    sizes = list(dict.fromkeys(row["n"] for row in ours))
    figure.set_size_inches(9, 4 * len(sizes))
    for axes, n in zip(figure.subplots(len(sizes), squeeze=False)[:, 0], sizes, strict=True):
        cells = [row for row in ours if row["n"] == n]
        for label, colour, missing in (("complete", "tab:blue", 0.0), ("half missing", "tab:orange", 0.5)):
            places = [k for k, row in enumerate(cells) if row["missing"] == missing]
            axes.bar(places, [cells[k]["fit / eigh"] for k in places], color=colour, label=label)
        axes.axhline(1.0, color="black", linewidth=0.8)
        names = [f"{row['structure']} {row['share']}, T = {row['T']}, gamma {row['gamma']}" for row in cells]
        axes.set_xticks(range(len(cells)), names, rotation=90, fontsize=6)
        axes.set_title(f"{n} rows")
        axes.set_ylabel("fit to 1e-6, in eigh(K)")
        axes.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="500 rows, 7 tasks; nothing is written")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--tasks", type=int, nargs="+", default=[7, 50, 200])
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.02, 0.2])
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--peer-limit", type=float, default=60.0, help="CPU seconds for the steps of a Gaussian process")
    parser.add_argument("--alone", action="store_true", help="without the methods that choose their strength")
    options = parser.parse_args()
    sizes, tasks = ([500], [7]) if options.quick else (options.sizes, options.tasks)
    limit = 2.0 if options.quick else options.peer_limit
    rows, notes = [], []
    for missing in (0.0, 0.5):
        cell(300, 7, 0.2, missing, "trace", SHARES[0], 1.0)
    if not importlib.util.find_spec("gpytorch"):
        notes.append("GPyTorch is not installed here: its rows are missing.")
    for n in sizes:
        for gamma in options.gammas:
            K = rbf_kernel(data(n, 7, 0.0)["X"], gamma=gamma)
            eigh = float(np.median([cpu(lambda K=K: np.linalg.eigh(K))[0] for _ in range(3 if n < LARGE else 1)]))
            for n_tasks in tasks:
                for missing in (0.0, 0.5):
                    for structure in ("trace", "frobenius"):
                        for share in options.shares if n_tasks == 50 else options.shares[:1]:
                            rows.append(cell(n, n_tasks, gamma, missing, structure, share, eigh))
                            print(rows[-1], flush=True)
                    rows += [] if options.alone else peers(n, n_tasks, gamma, missing, eigh, limit)
        name = "shared_inputs" + ("_large" if min(sizes) >= LARGE else "") + ("" if THREADS == 1 else f"_{THREADS}")
        title = f"Shared inputs and kernels, {THREADS} BLAS thread(s)"  # written after each size: the large ones take long
        write(name, title, rows, [*notes, *ratios(rows)], lambda figure, rows=rows: draw(figure, rows), options.quick)


def ratios(rows: list[dict[str, Any]]) -> list[str]:
    """How much dearer missing outputs are, in each cell that has both."""
    ours = {tuple(row[k] for k in ("n", "T", "gamma", "structure", "share", "missing")): row for row in rows if "share" in row}
    out = []
    for key, row in ours.items():
        if key[-1] and (whole := ours.get((*key[:-1], 0.0))):
            n, T, gamma, structure, share, _ = key
            where = f"n = {n}, T = {T}, gamma = {gamma}, {structure}, {share}"
            out.append(f"Half missing / complete, {where}: {row['fit s'] / whole['fit s']:.1f}")
    return out


if __name__ == "__main__":
    main()
