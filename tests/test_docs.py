"""What the pages in docs show runs, and the headings that estimators link to are there."""

import ast
import re
from pathlib import Path

import pytest

import taskloom

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "estimators.md"


PAGES = [
    ("estimators.md", 10),
    ("structures.md", 2),
    ("methods.md", 2),
    ("custom.md", 6),
    ("plots.md", 4),
    ("report.md", 2),
    ("scaling.md", 1),
]


@pytest.mark.parametrize(("name", "least"), PAGES)
def test_a_page_runs_from_top_to_bottom(name, least):
    """Every block, in order, in one namespace; a failure names the line of the page."""
    page = DOCS / name
    text = page.read_text()
    namespace = {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    assert len(blocks) >= least
    for block in blocks:
        above = text[: block.start(1)].count("\n")
        exec(compile("\n" * above + block[1], str(page), "exec"), namespace)


@pytest.mark.parametrize("name", ["MultiTaskRegressor", "MultiTaskClassifier", "MultiTaskRegressorCV", "MultiTaskClassifierCV"])
def test_the_link_of_the_html_representation_leads_somewhere(name):
    anchors = [heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)]
    page, anchor = getattr(taskloom, name)()._get_doc_link().split("/")[-1].split("#")
    assert page == f"{PAGE.stem}.html"
    assert anchor in anchors


def _tests_of(file):
    """What can be named in a test file: functions, classes, and the methods of classes."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            names.update(
                f"{node.name}::{inner.name}" for inner in getattr(node, "body", []) if isinstance(inner, ast.FunctionDef)
            )
    return names


def test_every_conversion_names_a_test_that_exists():
    """Each row of each table in methods.md is backed by a test, and so is every test that its prose names."""
    text = (DOCS / "methods.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) >= 30
    for row in rows:
        assert re.search(r"`test_\w+\.py::[\w:]+`", row), row
    for file, name in re.findall(r"`(test_\w+\.py)::([\w:]+)`", text):
        assert name in _tests_of(Path(__file__).parent / file), f"{file} has no {name}"
