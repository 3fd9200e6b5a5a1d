"""Write docs/licences.md: what taskloom depends on, from which version, under which licence.

    python docs/licences.py

Names and lower bounds come from pyproject.toml, licences from the metadata of what is installed.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
TOOLS = ("test", "docs", "lint", "browser", "torch")
HEAD = """# Licences

taskloom itself is under the BSD 3-Clause licence (`LICENSE`); what it uses is installed beside it.
`python docs/licences.py` writes this table from `pyproject.toml` and from what the installed packages say of themselves.

| package | from version | needed for | licence |
|---|---|---|---|
"""
BROUGHT = """
What the dependencies of a user (all but the tools and PyTorch) bring with them, as installed where this page was written:

| package | version | licence |
|---|---|---|
"""
KNOWN = {"torch": "BSD-3-Clause", "playwright": "Apache-2.0"}  # not installed with the tests


def dependencies() -> dict[str, tuple[str, list[str]]]:
    """Lower bound and use of each direct dependency."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    found: dict[str, tuple[str, list[str]]] = {}
    groups = {"always": project["dependencies"], **project["optional-dependencies"]}
    for group, requirements in groups.items():
        for requirement in requirements:
            name, _, bound = re.sub(r"\[.*?\]", "", requirement).partition(">=")
            if name != "taskloom":
                found.setdefault(name, (bound, []))[1].append("always" if group == "always" else f"`{group}`")
    return found


def licence(name: str) -> str:
    """What a package says: an SPDX expression, a classifier, or the first line of its licence."""
    try:
        said = metadata(name)
    except PackageNotFoundError:
        return KNOWN[name]
    classifiers = [each.split(" :: ")[-1] for each in said.get_all("Classifier", []) if each.startswith("License ::")]
    words = said.get("License-Expression") or (classifiers[-1] if classifiers else None) or said.get("License") or KNOWN[name]
    return words.strip().splitlines()[0]


def brought() -> list[str]:
    """The dependencies of a user's dependencies, as far as this machine needs them."""
    direct = dependencies()
    queue = [name for name, (_, uses) in direct.items() if any(use.strip("`") not in TOOLS for use in uses)]
    found: set[str] = set()
    while queue:
        name = queue.pop()
        for line in requires(name) or []:
            requirement = Requirement(line)
            new = canonicalize_name(requirement.name)
            extras = ("", "array", "dataframe", "distributed") if name == "dask" else ("",)
            wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in extras)
            if wanted and new not in found and new not in direct:
                found.add(new)
                queue.append(new)
    return sorted(found)


def table() -> str:
    rows = "".join(
        f"| {name} | {bound} | {', '.join(uses)} | {licence(name)} |\n" for name, (bound, uses) in dependencies().items()
    )
    return HEAD + rows + BROUGHT + "".join(f"| {name} | {version(name)} | {licence(name)} |\n" for name in brought())


if __name__ == "__main__":
    (HERE / "licences.md").write_text(table())
