"""What docs/estimators.md shows runs, and the headings that estimators link to are there."""

import re
from pathlib import Path

import pytest

import taskloom

PAGE = Path(__file__).parent.parent / "docs" / "estimators.md"


def test_the_page_runs_from_top_to_bottom(capsys):
    """Every block, in order, in one namespace; a failure names the line of the page."""
    text = PAGE.read_text()
    namespace = {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    assert len(blocks) > 10
    for block in blocks:
        above = text[: block.start(1)].count("\n")
        exec(compile("\n" * above + block[1], str(PAGE), "exec"), namespace)
    assert "Optimal" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["MultiTaskRegressor", "MultiTaskClassifier", "MultiTaskRegressorCV", "MultiTaskClassifierCV"])
def test_the_link_of_the_html_representation_leads_somewhere(name):
    anchors = [heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)]
    page, anchor = getattr(taskloom, name)()._get_doc_link().split("/")[-1].split("#")
    assert page == f"{PAGE.stem}.html"
    assert anchor in anchors
