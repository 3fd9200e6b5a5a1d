"""Shared inputs and kernels: a certified fit in units of one ``eigh`` of the kernel matrix; complete, and half of it missing.

    python benchmarks/shared_inputs.py [--quick] [--threads 1] [--sizes 500 2000 5000] [--tasks 7 50 200] [--gammas 0.02 0.2]

Inputs of five dimensions, an rbf kernel: smooth (gamma 0.02, whose spectrum decays fast) and rough (gamma 0.2, where nothing
but all eigenvectors will do). The strength is a share of the one at which the trace penalty learns nothing. Beside the fit: a
further strength on the same data, scikit-learn's ``KernelRidge`` and himalaya's (single-task, one strength, no certificate),
and GPyTorch's multitask exact Gaussian process (50 steps of Adam, up to 500 rows and 7 tasks) where it is installed. ``R2`` is
that of new rows against the noiseless targets, by one function for all of them.
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"]  # before numpy is imported

import argparse
import importlib.util
import warnings
from typing import Any

import numpy as np
from output import cpu, write
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor, solve

THREADS = int(os.environ["OMP_NUM_THREADS"])
TOL, SHARES, D = 1e-6, (0.1, 0.01), 5
LARGEST = 5000 * 50  # outputs beyond which a cell is left out
PEER_ROWS = 500  # of a Gaussian process over all outputs at once: its matrix has (n T)^2 entries


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
    seconds, _ = cpu(lambda: model.fit(some["X"], some["Y"]))
    row = {"n": n, "T": n_tasks, "gamma": gamma, "missing": missing, "structure": structure, "share": share, "eigh s": eigh}
    row |= {"fit s": seconds, "fit / eigh": seconds / eigh, "iterations": model.n_iter_}
    row |= {"relative gap": model.certificate_.relative_gap, "R2": r2(some["truth"], model.predict(some["X_new"]))}
    prepared, W, b, _ = model._training  # the problem of the fit, with what was computed from the data alone
    further, again = cpu(lambda: solve(prepared.problem.at(0.6 * alpha), tol=TOL, start=(W, b)))
    return row | {"further / fit": further / seconds, "further gap": again.certificate.relative_gap}


def peers(n: int, n_tasks: int, gamma: float, missing: float, eigh: float) -> list[dict[str, Any]]:
    some = data(n, n_tasks, missing)
    X, Y, X_new = some["X"], some["Y"], some["X_new"]

    def by_scikit() -> np.ndarray:
        if not missing:
            return KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma).fit(X, Y).predict(X_new)
        columns = [~np.isnan(y) for y in Y.T]
        fits = [KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma).fit(X[s], y[s]) for s, y in zip(columns, Y.T, strict=True)]
        return np.column_stack([fit.predict(X_new) for fit in fits])

    methods = {"scikit-learn KernelRidge": by_scikit}
    if not missing and importlib.util.find_spec("himalaya"):
        methods["himalaya KernelRidge"] = lambda: by_himalaya(X, Y, X_new, gamma)
    if not missing and n <= PEER_ROWS and n_tasks <= 7 and importlib.util.find_spec("gpytorch"):
        methods["GPyTorch multitask"] = lambda: by_gpytorch(X, Y, X_new)
    rows = []
    for name, method in methods.items():
        seconds, found = cpu(method)
        row = {"n": n, "T": n_tasks, "gamma": gamma, "missing": missing, "structure": name, "eigh s": eigh}
        rows.append(row | {"fit s": seconds, "fit / eigh": seconds / eigh, "R2": r2(some["truth"], np.asarray(found))})
    return rows


def by_himalaya(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray, gamma: float) -> np.ndarray:
    from himalaya.backend import set_backend
    from himalaya.kernel_ridge import KernelRidge as Himalaya

    set_backend("numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Himalaya(alpha=0.1, kernel="rbf", kernel_params={"gamma": gamma}).fit(X, Y).predict(X_new)


def by_gpytorch(X: np.ndarray, Y: np.ndarray, X_new: np.ndarray) -> np.ndarray:
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

    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=T).double()
    model = Model(likelihood).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(50):
        optimiser.zero_grad()
        loss = -objective(model(inputs), targets)
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        return model(new).mean.numpy() + Y.mean(axis=0)


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    ours = [row for row in rows if "share" in row]
    axes = figure.subplots()
    labels = [
        f"{row['n']}x{row['T']} {row['structure'][:4]}\ng={row['gamma']} {row['share']}{' half' if row['missing'] else ''}"
        for row in ours
    ]
    axes.bar(range(len(ours)), [row["fit / eigh"] for row in ours])
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(ours)), labels, rotation=90, fontsize=6)
    axes.set_ylabel("fit to 1e-6, in units of one eigh(K)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="500 rows, 7 tasks; nothing is written")
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--tasks", type=int, nargs="+", default=[7, 50, 200])
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.02, 0.2])
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    options = parser.parse_args()
    sizes, tasks = ([500], [7]) if options.quick else (options.sizes, options.tasks)
    rows, notes = [], []
    if not importlib.util.find_spec("gpytorch"):
        notes.append("GPyTorch is not installed here: its rows are missing.")
    for n in sizes:
        for gamma in options.gammas:
            K = rbf_kernel(data(n, 7, 0.0)["X"], gamma=gamma)
            eigh = float(np.median([cpu(lambda K=K: np.linalg.eigh(K))[0] for _ in range(3 if n < 5000 else 1)]))
            for n_tasks in tasks:
                if n * n_tasks > LARGEST:
                    notes.append(f"Left out: n = {n}, T = {n_tasks} ({n * n_tasks} outputs).")
                    continue
                for missing in (0.0, 0.5):
                    for structure in ("trace", "frobenius") if n < 5000 else ("trace",):
                        for share in options.shares if n_tasks == 50 else options.shares[:1]:
                            rows.append(cell(n, n_tasks, gamma, missing, structure, share, eigh))
                            print(rows[-1], flush=True)
                    rows += peers(n, n_tasks, gamma, missing, eigh)
    notes += ratios(rows)
    name = "shared_inputs" if THREADS == 1 else f"shared_inputs_{THREADS}"
    title = f"Shared inputs and kernels, {THREADS} BLAS thread(s)"
    write(name, title, rows, notes, lambda figure: draw(figure, rows), options.quick)


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
