"""Data: simulated (no download), and the data sets of the paper's experiments, fetched once or read from a local folder."""

from __future__ import annotations

from .download import get_data_home
from .real import fetch_sarcos, fetch_scenes, fetch_school
from .synthetic import load_shops, make_tasks

__all__ = ["fetch_sarcos", "fetch_scenes", "fetch_school", "get_data_home", "load_shops", "make_tasks"]
