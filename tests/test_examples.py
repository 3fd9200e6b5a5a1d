"""The examples of the gallery cannot rot: what they import is there, and they run without a warning."""

import ast
import importlib
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("plot_*.py"))


def test_there_is_one_for_each_question():
    questions = " ".join(ast.get_docstring(ast.parse(file.read_text())) or "" for file in EXAMPLES)
    for words in (
        "Are my tasks related?",
        "Some targets are missing",
        "A new task arrived",
        "Which tasks are outliers?",
        "A hierarchy is known",
        "Trend plus clusters",
        "Thousands of tasks",
        "How sure is it?",
    ):
        assert words in questions


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_has_a_title_and_what_it_imports(file):
    tree = ast.parse(file.read_text())
    title, line = (ast.get_docstring(tree) or "").splitlines()[:2]
    assert title
    assert line == "=" * len(title)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("taskloom"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), file.name


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_runs(file):
    """The build of the pages runs them too, with warnings as errors."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    try:
        runpy.run_path(str(file), run_name="__main__")
        assert pyplot.get_fignums(), "an example draws at least one figure"
    finally:
        pyplot.close("all")
