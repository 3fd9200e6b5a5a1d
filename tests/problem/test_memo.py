"""What is computed once for a problem is computed anew where what it is made of changes."""

import ast
from pathlib import Path

import numpy as np
import pytest

import taskloom
from taskloom import Problem, losses, structures
from taskloom.problem.memo import MADE_OF

SOURCE = Path(taskloom.__file__).parent


def test_everything_that_is_computed_once_says_what_it_is_made_of():
    """Keys that are written where they are used are listed, and what is listed is written somewhere."""
    used, written = set(), set()
    for path in SOURCE.rglob("*.py"):
        if path.name == "memo.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                written.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("once", "known"):
                used |= {key.value for key in node.args[:1] if isinstance(key, ast.Constant)}
    assert len(used) > 20
    assert used <= set(MADE_OF) <= written


def test_a_key_that_is_not_listed_is_noticed():
    problem = Problem(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
    problem.once("nonsense", lambda: 0)
    with pytest.raises(KeyError, match="nonsense"):
        problem.with_loss(losses.as_loss("huber"))


def test_what_changes_drops_what_was_made_of_it():
    problem = Problem(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
    for key in MADE_OF:
        problem.once(key, lambda key=key: key)
    assert "scale" not in problem.with_loss(losses.as_loss("huber"))._memo
    assert "parts" in problem.with_loss(losses.as_loss("huber"))._memo
    assert set(MADE_OF) - set(problem.with_structure(structures.as_structure("frobenius"))._memo) == {
        "centred",
        "nothing",
        "unfolded",
    }
    assert problem.at(2.0)._memo is problem._memo
