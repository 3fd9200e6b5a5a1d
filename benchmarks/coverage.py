"""How often the truth lies in the band that ``predict(X, return_std=...)`` draws, for structures that are known and learned.

    python benchmarks/coverage.py [--repeats 20]

Eight tasks with five inputs, two common directions, noise of half a standard deviation, 20 to 200 rows with all targets;
strengths by cross-validation; ``return_std=True`` (given the structure) and ``"joint"``. Of the true functions at 200 new
rows, the share within 1.96 standard deviations (0.95 if these are right), and the error in units of the standard deviation
(1 if they are right; a root mean square). Writes benchmarks/results/coverage.json and coverage.md.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import numpy as np  # noqa: E402
from output import table  # noqa: E402

import taskloom  # noqa: E402
from taskloom import MultiTaskRegressorCV  # noqa: E402

RESULTS = Path(__file__).parent / "results"
STRUCTURES = ("independent", "shared_mean", "frobenius", "unit_trace", "trace")
SIZES = (20, 60, 200)


def errors(structure: str, n: int, seed: int) -> list[np.ndarray]:
    """Of the predicted functions, in units of their standard deviations: given the structure, and jointly."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 8))
    X, X_new = rng.normal(size=(n, 5)), rng.normal(size=(200, 5))
    truth = X @ W
    Y = truth + 0.5 * truth.std() * rng.normal(size=truth.shape)
    model = MultiTaskRegressorCV(structure, alphas=10, scoring="steady", kernels=None).fit(X, Y)
    bands = [model.predict(X_new, return_std=how) for how in (True, "joint")]
    return [(X_new @ W - mean) / std for mean, std in bands]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    rows = []
    for structure in STRUCTURES:
        found = {n: np.stack([errors(structure, n, seed) for seed in range(repeats)], axis=1) for n in SIZES}
        for k, how in enumerate(("True", '"joint"')):
            row: dict[str, object] = {"structure": structure, "return_std": how}
            for n in SIZES:
                row[f"{n} rows: covered"] = float(np.mean(np.abs(found[n][k]) <= 1.96))
                row[f"{n} rows: error / std"] = float(np.sqrt(np.mean(found[n][k] ** 2)))
            rows.append(row)
            print(row, flush=True)
    command = f"python benchmarks/coverage.py --repeats {repeats}"
    head = (
        f"# What lies in the band of `return_std`\n\n`{command}`: the share of true functions within 1.96 standard deviations "
    )
    text = head + f"(0.95 if these are right), and the error in units of them.\n\n{table(rows)}\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    record = {"command": command, "versions": {"taskloom": taskloom.__version__, "numpy": np.__version__}, "rows": rows}
    (RESULTS / "coverage.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "coverage.md").write_text(text)


if __name__ == "__main__":
    main()
