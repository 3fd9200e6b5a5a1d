"""What the pages in docs show runs and prints what they say, and what they name is there."""

import ast
import contextlib
import io
import re
from pathlib import Path
from types import ModuleType

import pytest

import taskloom

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "estimators.md"
TESTS = {file.name: file for file in Path(__file__).parent.rglob("test_*.py")}  # pages name tests without their folders
# A block of Python runs; a block of text right after it is what it prints. (Code that is not ours to run is ```py.)
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page):
    """Every block, in order, in one namespace; a failure names the line of the page."""
    text = page.read_text()
    namespace = {}
    for block in BLOCK.finditer(text):
        above = text[: block.start(1)].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * above + block[1], str(page), "exec"), namespace)
        if block[2] is not None:
            assert printed.getvalue().rstrip() == block[2].rstrip(), f"{page.name}, line {above}"


LEAST = {
    "estimators": 10,
    "structures": 2,
    "methods": 2,
    "custom": 6,
    "plots": 4,
    "report": 2,
    "scaling": 5,
    "start": 5,
    "layouts": 4,
    "coming_from": 4,
}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_pages_have_blocks_to_run(name, least):
    assert len(BLOCK.findall((DOCS / f"{name}.md").read_text())) >= least


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


def test_every_test_that_is_named_exists():
    """On every page: `test_x.py`, `test_x.py::name`, and a bare `TestName` or `test_name`."""
    names = {name: _tests_of(file) for name, file in TESTS.items()}
    everywhere = set().union(*names.values()) | {inner.split("::")[-1] for inner in set().union(*names.values())}
    for page in [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"]:
        text = page.read_text()
        for file, name in re.findall(r"`(?:tests/)?(test_\w+\.py)(?:::([\w:]+))?", text):
            assert file in names, f"{page.name} names {file}"
            assert not name or name in names[file], f"{page.name} names {file}::{name}"
        for name in re.findall(r"`((?:Test[A-Z]|test_)\w+)`", text):
            assert name in everywhere, f"{page.name} names {name}"


def test_no_two_test_files_have_one_name():
    """Or what a page names would be either."""
    assert len(TESTS) == len(list(Path(__file__).parent.rglob("test_*.py")))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/robustness.md"])
def test_promises_name_tests(page):
    """A promise without its test is a wish; that the tests exist is checked above."""
    assert re.search(r"`test_\w+\.py::\w+`", (ROOT / page).read_text())


@pytest.mark.parametrize("name", ["theory.md", "notation.md"])
def test_every_file_that_is_named_exists(name):
    files = set(re.findall(r"`((?:\w+/)*(?!test_)\w+\.py)`", (DOCS / name).read_text()))
    assert len(files) >= 10
    for file in files:
        assert any((base / file).exists() for base in (ROOT / "src" / "taskloom", ROOT)), f"{name} names {file}"


def test_every_statement_of_the_paper_has_code_and_a_test():
    """Each section of theory.md says where it is implemented and what checks it; so does each row of its tables."""
    text = (DOCS / "theory.md").read_text()
    sections = re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]
    for section in sections:
        title, body = section.split("\n", 1)
        if body.strip() and "|---|" not in body:
            assert "- Code: " in body, title
            assert re.search(r"^- Test: .*`test_\w+\.py::", body, flags=re.MULTILINE), title
    for row in re.findall(r"^\| .*\|$", text, flags=re.MULTILINE):
        assert row.endswith("| test |") or re.search(r"`test_\w+\.py::[\w:]+`", row), row


def test_every_conversion_names_a_test_that_exists():
    """Each row of each table in methods.md is backed by a test."""
    text = (DOCS / "methods.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) >= 30
    for row in rows:
        assert re.search(r"`test_\w+\.py::[\w:]+`", row), row


def test_every_public_module_is_in_the_reference():
    listed = re.findall(r"^   (taskloom\S*)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    for name in taskloom.__all__:
        if isinstance(getattr(taskloom, name), ModuleType):
            assert f"taskloom.{name}" in listed, f"add taskloom.{name} to docs/api.md"


def test_rows_of_a_table_have_as_many_cells_as_its_head():
    """A bar splits a cell even inside code, so norms in tables are written norm(x)."""
    for page in DOCS.glob("*.md"):
        for table in re.findall(r"(?:^\|.*\|$\n?)+", page.read_text(), flags=re.MULTILINE):
            bars = {line.count("|") for line in table.splitlines()}
            assert len(bars) == 1, f"{page.name}: {table[:200]}"
