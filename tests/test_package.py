"""What a user installs: lower bounds, licences, no use of the network, complete metadata."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import sklearn

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV

ESTIMATORS = [MultiTaskRegressor, MultiTaskRegressorCV, MultiTaskClassifier, MultiTaskClassifierCV]


SOURCE = Path(taskloom.__file__).parent
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

OFFLINE = """
import socket

class NoSocket(socket.socket):
    def __init__(self, *args, **options):
        raise AssertionError("a socket was opened")

def refuse(*args, **options):
    raise AssertionError("a name was looked up")

socket.socket, socket.create_connection, socket.getaddrinfo = NoSocket, refuse, refuse
"""
EVERYTHING = (
    OFFLINE
    + """
import pkgutil, importlib, sys
import taskloom
for module in pkgutil.walk_packages(taskloom.__path__, "taskloom."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from taskloom import cli
for command in (
    ["demo", "--no-report", "-q"],
    ["demo", "--table", "shops.csv"],
    "fit shops.csv --target sales --task shop --alphas 2 --cv 2 --save m --report r.html".split(),
    ["predict", "m", "shops.csv", "-o", "out.csv"],
    ["inspect", "m"],
):
    assert cli.run(command) == 0, command
try:
    socket.socket()
except AssertionError:
    print("still closed")
"""
)


def test_nothing_but_the_fetchers_uses_the_network(tmp_path):
    """Every module is imported, and the commands run, in a process that cannot open a socket."""
    run = subprocess.run([sys.executable, "-c", EVERYTHING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.rstrip().endswith("still closed")
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_only_the_store_of_datasets_imports_network_modules():
    network = {"urllib", "http", "socket", "ssl", "ftplib", "requests", "httpx", "aiohttp", "smtplib"}
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            if any(name.split(".")[0] in network for name in names):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == {"datasets/download.py"}


def test_every_dependency_has_a_lower_bound_and_a_licence():
    listed = (ROOT / "docs" / "licences.md").read_text()
    written = runpy.run_path(str(ROOT / "docs" / "licences.py"))["dependencies"]()
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {re.split(r"[\[>=]", requirement)[0] for group in groups for requirement in group} - {"taskloom"}
    assert set(written) == names
    for name, (bound, uses) in written.items():
        assert bound, f"{name} has no lower bound in pyproject.toml"
        row = re.search(
            rf"^\| {re.escape(name)} \| {re.escape(bound)} \| {re.escape(', '.join(uses))} \| (.+) \|$", listed, re.M
        )
        assert row is not None, f"docs/licences.md is out of date on {name}: run python docs/licences.py"
        assert row[1].strip() not in ("", "UNKNOWN"), f"docs/licences.md has no licence of {name}"


def test_what_is_imported_is_a_dependency():
    """A module that comes along with another today may not tomorrow; narwhals did with scikit-learn."""
    known = {"sklearn": "scikit-learn", "joblib": "scikit-learn", "distributed": "dask", "markupsafe": "jinja2"}
    optional = {"cupy"}  # chosen by whoever has it
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {re.split(r"[\[>=]", requirement)[0] for group in groups for requirement in group} | optional
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for module in (each.split(".")[0] for each in modules):
                fine = module in sys.stdlib_module_names or known.get(module, module) in names or module == "taskloom"
                assert fine, f"{path.name} imports {module}, which is no dependency of pyproject.toml"


def test_lower_bounds_become_pins():
    pins = runpy.run_path(str(ROOT / ".ci" / "lower_bounds.py"))
    bounds = pins["bounds"]()
    for requirement in PROJECT["dependencies"]:
        name, _, lowest = requirement.partition(">=")
        assert bounds[name] == lowest
    assert pins["numbers"]("2.0.0") == pins["numbers"]("2.0") != pins["numbers"]("2.0.1")


def test_the_package_is_complete(capsys):
    """Py.typed, ``__version__``, ``__all__``, ``show_versions()``, licence, changelog and citation file."""
    home = Path(taskloom.__file__).parent
    assert (home / "py.typed").exists()
    assert {"__version__", "show_versions", *(cls.__name__ for cls in ESTIMATORS)} <= set(taskloom.__all__)
    taskloom.show_versions()
    shown = capsys.readouterr().out
    assert f"taskloom: {taskloom.__version__}\n" in shown
    assert f"scikit-learn: {sklearn.__version__}\n" in shown
    assert "threads" in shown
    root = home.parents[1]
    if (root / "pyproject.toml").exists():  # an installed wheel has no such neighbours
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
        assert project["license"] == "BSD-3-Clause"
        assert all((root / name).stat().st_size > 0 for name in ("LICENSE", "CHANGELOG.md", "CITATION.cff"))
