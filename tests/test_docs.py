"""What the pages in docs show runs, and the headings that estimators link to are there."""

import re
from pathlib import Path

import pytest

import taskloom

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "estimators.md"


@pytest.mark.parametrize(("name", "least"), [("estimators.md", 10), ("structures.md", 2), ("plots.md", 4), ("report.md", 2)])
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
