"""The lower bounds of pyproject.toml as exact pins, one a line; --check says whether they are what is installed.

Bounds of tools (the linters, the documentation) are left out: nothing that is installed for a user depends on them.
"""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

TOOLS = {"docs", "lint", "browser", "torch"}
BOUND = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<version>[0-9.]+)$")


def bounds() -> dict[str, str]:
    """Name and lower bound of every dependency and of the extras that the tests install."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for extra in extras if extra not in TOOLS for each in extras[extra])]
    found: dict[str, str] = {}
    for requirement in wanted:
        if requirement.startswith("taskloom["):
            continue
        match = BOUND.match(requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml must give {requirement!r} a lower bound and nothing else (name>=version)")
        if found.setdefault(match["name"], match["version"]) != match["version"]:
            raise SystemExit(
                f"pyproject.toml gives {match['name']} two lower bounds, {found[match['name']]} and {match['version']}"
            )
    return found


def numbers(text: str) -> list[int]:
    """A version without the zeros at its end: 2.0 and 2.0.0 are one."""
    return [*map(int, re.sub(r"(\.0)+$", "", text).split("."))]


def main() -> None:
    for name, lowest in bounds().items():
        if "--check" not in sys.argv:
            sys.stdout.write(f"{name}=={lowest}\n")
        elif numbers(version(name)) != numbers(lowest):
            raise SystemExit(f"{name} {version(name)} is installed, the lower bound is {lowest}")


if __name__ == "__main__":
    main()
