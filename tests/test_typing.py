"""What a type checker tells a user: ``mypy --strict`` over code that uses the public names, rightly and wrongly."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import taskloom

pytest.importorskip("mypy", reason="mypy is in the extra [lint]")

# A line that ends in "#> text" reveals that type, or is refused with that text; every other line passes.
SNIPPET = """
from typing import Any

import numpy as np
import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, Problem, alpha_max, path, solve
from taskloom import NoSuchThing  #> has no attribute "NoSuchThing"
from taskloom.losses import Huber
from taskloom.metrics import macro_r2, scorer
from taskloom.structures import Clusters, Trace

X, Y = np.zeros((9, 2)), np.zeros((9, 3))
model = MultiTaskRegressor(Clusters(3), alpha=0.1, loss=Huber(0.5), task_column="shop")
reveal_type(model.fit(X, Y))  #> taskloom.estimators.regressor.MultiTaskRegressor
reveal_type(model.fit(X, Y).predict(X))  #> numpy.ndarray
reveal_type(model.predict(X, return_std=True))  #> tuple[numpy.ndarray
reveal_type(model.score(X, Y))  #> float"
reveal_type(model.partial_fit(X, Y))  #> taskloom.estimators.regressor.MultiTaskRegressor
reveal_type(model.add_task(X, Y[:, 0], "new"))  #> taskloom.estimators.regressor.MultiTaskRegressor
reveal_type(model.task_clusters())  #> numpy.ndarray
reveal_type(MultiTaskRegressorCV().fit(X, Y, groups=X[:, 0]))  #> taskloom.estimators.regressor_cv.MultiTaskRegressorCV
reveal_type(MultiTaskClassifier(coding="simplex").fit(X, Y).predict_proba(X))  #> numpy.ndarray
reveal_type(taskloom.methods.MTFL(alpha=1.0))  #> taskloom.estimators.regressor.MultiTaskRegressor

problem = Problem(X, Y, structure="trace", alpha=0.1)
problem = Problem(X, Y, structure=Trace(), alpha=0.1)
reveal_type(solve(problem))  #> taskloom.problem.solution.Solution
reveal_type(solve(problem).certificate)  #> taskloom.problem.solution.Certificate
reveal_type(path(problem, [1.0, 0.1]))  #> list[taskloom.problem.solution.Solution]
reveal_type(alpha_max(problem))  #> float"
reveal_type(macro_r2(Y, Y))  #> float"
scorer(macro_r2, greater_is_better=True)

MultiTaskRegressor(strength=0.1)  #> Unexpected keyword argument "strength"
MultiTaskRegressor(alpha="much")  #> Argument "alpha"
MultiTaskRegressor(structure=3)  #> Argument "structure"
MultiTaskRegressor(unseen="ignore")  #> Argument "unseen"
model.fit(X, Y, task="shop")  #> Unexpected keyword argument "task"
model.fit(X)  #> Missing positional argument "y"
model.predict(X, return_std="both")  #> No overload variant
solve(X)  #> Argument 1 to "solve"
Clusters("three")  #> Argument 1 to "Clusters"
taskloom.no_such_module  #> has no attribute "no_such_module"


class Mine:
    def value(self, A: np.ndarray) -> float:
        return float(np.trace(A))

    def prox(self, A: np.ndarray, step: float) -> np.ndarray:
        return A


MultiTaskRegressor(Mine(), kernel=lambda a, b: a @ b.T, task_weight={"shop": 2.0})
MultiTaskRegressorCV(structures=["trace", Mine()], alphas=[0.1, 1.0])
"""


def test_a_checker_sees_the_types_of_public_names(tmp_path):
    (tmp_path / "user.py").write_text(SNIPPET)
    command = ["--strict", "--follow-imports=silent", "--no-error-summary", "--hide-error-context", "--config-file=", "user.py"]
    source = str(Path(taskloom.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *command],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not run.stderr, run.stderr
    said: dict[int, list[str]] = {}
    for line, message in re.findall(r"^user\.py:(\d+): (?:error|note): (.*)$", run.stdout, flags=re.MULTILINE):
        said.setdefault(int(line), []).append(message)
    for number, line in enumerate(SNIPPET.splitlines(), start=1):
        code, _, wanted = line.partition("  #> ")
        messages = said.pop(number, [])
        assert wanted or not messages, f"line {number}, {code}: {messages}"
        assert any(wanted in message for message in messages) or not wanted, f"{code} should say {wanted!r}, got {messages}"
        assert not code.startswith("reveal_type") or "Any" not in messages[0].split("[")[0], messages
    assert not said
