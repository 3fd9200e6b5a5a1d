"""Everything that is exported is listed in the zoo, has a name, and imports go downward only."""

import ast
from pathlib import Path

import pytest
import zoo

import taskloom
from taskloom import losses, structures
from taskloom._component import snake_case

SOURCE = Path(taskloom.__file__).parent
LOSSES = zoo.LOSSES + zoo.ROW_LOSSES


ALL_STRUCTURES = zoo.STRUCTURES + zoo.ON_FEATURES + zoo.SUMS + zoo.NON_CONVEX


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
    {"_component", "_linalg", "versions"},
    {"_array_api"},
    {"losses", "structures", "features", "tables"},
    {"design", "inspection", "equivalences", "metrics", "testing"},
    {"problem"},
    {"solvers", "uncertainty", "maps"},
    {"persistence"},
    {"estimators"},
    {"methods", "datasets", "plots", "report", "distributed"},
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
