"""Everything that is exported is listed in the zoo, has a name, and imports go downward only."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import zoo

import taskloom
from taskloom import losses, structures
from taskloom._component import snake_case

SOURCE = Path(taskloom.__file__).parent
LOSSES = zoo.LOSSES + zoo.ROW_LOSSES


ALL_STRUCTURES = zoo.STRUCTURES + zoo.KNOWN_ON_FEATURES + zoo.ON_FEATURES + zoo.SUMS + zoo.NON_CONVEX


@pytest.mark.parametrize(("kind", "listed"), [(losses, LOSSES), (structures, ALL_STRUCTURES)], ids=["losses", "structures"])
def test_every_exported_component_is_in_the_zoo(kind, listed):
    abstract = {"Loss", "RowLoss", "Structure"}
    missing = set(kind.__all__) - abstract - {type(component).__name__ for component in listed}
    assert not missing, f"add {missing} to tests/zoo.py: that is all the testing it needs"


@pytest.mark.parametrize(
    ("as_component", "listed"),
    [(losses.as_loss, LOSSES), (structures.as_structure, ALL_STRUCTURES)],
    ids=["losses", "structures"],
)
def test_every_exported_component_can_be_named(as_component, listed):
    """By its snake_case name, or with an error that says which arguments it needs; an object stands for itself."""
    for component in listed:
        assert as_component(component) is component
        try:
            assert type(as_component(snake_case(type(component).__name__))) is type(component)
        except ValueError as error:
            assert "needs arguments" in str(error)  # noqa: PT017 (either outcome is right, a third is not)


# A module may import the modules of the rows above its own, not those beside it (siblings do not know each other).
LAYERS = [
    {"_time_limit"},
    {"_component", "_linalg", "labels", "versions"},
    {"_array_api"},
    {"losses", "structures", "features", "tables"},
    {"design", "equivalences", "metrics", "testing"},
    {"problem"},
    {"engines"},
    {"solvers", "maps"},
    {"uncertainty"},
    {"persistence"},
    {"estimators"},
    {"methods", "datasets", "plots", "report", "distributed", "formula"},
    {"experiments"},
    {"cli"},
    {"__main__"},
]


def test_imports_go_downward():
    level = {module: depth for depth, row in enumerate(LAYERS) for module in row}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] == "__init__":
            continue
        assert parts[0] in level, f"{parts[0]} has no place among the layers of {__file__}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == len(parts):
                for module in [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]:
                    beneath = level[module] < level[parts[0]] or module == parts[0]
                    assert beneath, f"{path.name} imports {module}, which is not below it"


def test_public_names_are_there():
    for name in taskloom.__all__:
        assert getattr(taskloom, name) is not None
    assert set(taskloom.__all__) == set(dir(taskloom))
    with pytest.raises(AttributeError, match="nonsense"):
        taskloom.nonsense  # noqa: B018


PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


@pytest.mark.skipif(not PAGE.exists(), reason="pages are not part of the package")
def test_the_page_has_the_folders_in_the_order_of_the_layers():
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.read_text(), flags=re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    level = {module: depth for depth, row in enumerate(LAYERS) for module in row}
    assert set(level) - set(listed) <= {"__main__", "maps"}
    depths = [level[name] for name in listed]
    assert depths == sorted(depths)


def table_with_gaps(rng):
    X, Y = rng.normal(size=(40, 5)), rng.normal(size=(40, 8))
    Y[rng.random(Y.shape) < 0.5] = np.nan
    return taskloom.MultiTaskRegressor(), X, Y


def table_with_groups(rng):
    terms = [taskloom.Term("linear", columns=[0, 1], weight=np.inf), taskloom.Term("constant", by=2)]
    X = np.column_stack([rng.normal(size=(40, 2)), np.arange(40) % 6])
    return taskloom.MultiTaskRegressor(terms=terms), X, rng.normal(size=40)


@pytest.mark.skipif(not PAGE.exists(), reason="pages are not part of the package")
@pytest.mark.parametrize(
    ("heading", "least", "example"),
    [("The walk of one observation", 15, table_with_gaps), ("The walk with terms", 10, table_with_groups)],
)
def test_the_walk_of_the_page_is_what_a_fit_does(heading, least, example):
    """Every step is a call of that function in that file, after the call of the step before it."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \|", section, flags=re.MULTILINE)
    assert len(steps) >= least
    calls = []

    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls.append((Path(frame.f_code.co_filename).relative_to(SOURCE).as_posix(), frame.f_code.co_qualname))

    model, X, Y = example(np.random.default_rng(0))
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        model.fit(X, Y).predict(X[:1])
    finally:
        sys.setprofile(before)
    missing = [step for step in steps if step not in calls]
    assert not missing, f"a fit does not call {missing}: change docs/architecture.md"
    place = -1
    for step in steps:
        later = calls[place + 1 :]
        assert step in later, f"{step} is not called after the step before it: change docs/architecture.md"
        place += 1 + later.index(step)
