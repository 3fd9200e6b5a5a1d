"""What CONTRIBUTING.md shows runs, and the files, tests and names that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def test_the_examples_run():
    """Every block, in order, in one namespace; a failure names the line of the page."""
    namespace: dict[str, object] = {"__name__": "contributing"}
    blocks = list(BLOCK.finditer(TEXT))
    assert len(blocks) >= 5
    for block in blocks:
        above = TEXT[: block.start(1)].count("\n")
        exec(compile("\n" * above + block[1], str(PAGE), "exec"), namespace)


def test_the_files_that_are_named_exist():
    named = re.findall(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./-]+|[A-Z_]+\.md)`", TEXT)
    assert len(named) >= 30
    named += re.findall(r"(?:python|pytest) ((?:tests|benchmarks)/[\w/]+\.py)", TEXT)  # in commands
    missing = sorted({name for name in named if not (ROOT / name).exists()})
    assert not missing, missing


def test_the_tests_that_are_named_exist():
    written = "\n".join(file.read_text() for file in Path(__file__).parent.rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", TEXT):
        assert f"def {name}(" in written, name


def test_set_up_takes_two_commands():
    section = TEXT.split("## Set up\n")[1].split("\n## ")[0]
    commands = re.findall(r"```bash\n(.*?)```", section, flags=re.DOTALL)
    assert [len(block.strip().splitlines()) for block in commands] == [2]


def test_every_kind_of_contribution_has_a_section():
    headings = re.findall(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    assert {f"Add a {kind}" for kind in ("loss", "structure", "kernel", "solver")} | {"Add an engine"} <= set(headings)
