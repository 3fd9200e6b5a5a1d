"""Versions and thread pools, for bug reports."""

from __future__ import annotations

import importlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from threadpoolctl import threadpool_info

from taskloom import __version__

REQUIRED = ("numpy", "scipy", "scikit-learn")
PACKAGES = (*REQUIRED, "threadpoolctl", "joblib", "pandas", "polars", "pyarrow", "cvxpy", "torch")


def versions() -> dict[str, str]:
    """The versions of taskloom, Python and the required packages."""
    return {"taskloom": __version__, "python": platform.python_version(), **{name: version(name) for name in REQUIRED}}


def show_versions() -> None:
    """Print the versions of taskloom, Python, the packages it works with, and their thread pools.

    Examples
    --------
    >>> from taskloom import show_versions
    >>> show_versions()  # doctest: +ELLIPSIS
    taskloom: ...
    """
    importlib.import_module("scipy.linalg")  # loads the libraries whose threads are listed
    lines = [
        f"taskloom: {__version__}",
        f"python: {sys.version.split()[0]} ({platform.platform()})",
        *(f"{name}: {_installed(name)}" for name in PACKAGES),
        *(f"{pool['internal_api']}: {pool.get('version')} with {pool['num_threads']} threads" for pool in threadpool_info()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
