"""Freeze what the taskloom that is imported computes, for tests/test_golden.py to compare later code with.

    cd tests && PYTHONPATH=path/to/old/src python -m golden.freeze --revision 4bfd7af [--brackets] [--models]

Run it with the OLD code on the path, never with the code that is to be tested: a file that is made anew agrees with
everything. Writes ``brackets.json`` (both ends of the certificate, status, weights and intercepts of every case of cases.py)
and ``models/`` (a dozen model files with input rows and predictions); with one of the two flags, that one only.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from golden import cases, models

import taskloom

HERE = Path(__file__).parent
DIGITS = 12  # of weights: far more than the gaps leave certain


def rounded(values: np.ndarray) -> list:
    return [rounded(row) for row in values] if values.ndim > 1 else [float(f"{v:.{DIGITS}g}") for v in values]


def record(case: cases.Case) -> dict[str, Any] | None:
    """What is kept of a solution, ``None`` if the solver declines; without a lower bound where the problem is not convex."""
    try:
        found = case.solved()
    except ValueError:
        return None
    certificate = found.certificate
    kept = {"primal": certificate.primal, "status": certificate.status}
    if np.isfinite(certificate.dual):
        kept |= {"dual": certificate.dual, "relative_gap": float(f"{certificate.relative_gap:.3g}")}
    return kept if case.slow else kept | {"W": rounded(found.W), "b": rounded(found.b)}


def freeze_brackets(source: dict[str, str]) -> None:
    """One case a line, so that a difference between two files can be read."""
    lines, seconds = [], {True: 0.0, False: 0.0}
    for case in cases.every_case():
        began = time.process_time()
        if kept := record(case):
            lines.append(f"{json.dumps(case.key)}: {json.dumps(kept, separators=(',', ':'))}")
        seconds[case.slow] += time.process_time() - began
    body = ",\n".join(lines)
    (HERE / "brackets.json").write_text(f'{{"source": {json.dumps(source)},\n"cases": {{\n{body}\n}}}}\n')
    sys.stdout.write(f"{len(lines)} cases: {seconds[False]:.0f} CPU s, and {seconds[True]:.0f} s for the slow ones\n")


def freeze_models(source: dict[str, str]) -> None:
    folder = HERE / "models"
    folder.mkdir(exist_ok=True)
    expected = {}
    for name, (model, rows) in models.fitted().items():
        taskloom.save(model, folder / f"{name}.taskloom")
        expected[name] = {"rows": models.as_columns(rows), "answers": models.answers(model, rows)}
    (folder / "expected.json").write_text(json.dumps({"source": source, "models": expected}, indent=1) + "\n")
    sys.stdout.write(f"{len(expected)} models\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", required=True, help="the commit of the code that is on the path")
    parser.add_argument("--brackets", action="store_true")
    parser.add_argument("--models", action="store_true")
    options = parser.parse_args()
    source = {"revision": options.revision, "taskloom": taskloom.__version__, "numpy": np.__version__}
    if options.brackets or not options.models:
        freeze_brackets(source)
    if options.models or not options.brackets:
        freeze_models(source)


if __name__ == "__main__":
    main()
