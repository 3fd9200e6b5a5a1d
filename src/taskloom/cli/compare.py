"""``taskloom compare``."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command()
@options.data
@click.option("--structure", type=options.Names(), help="Which structures; all that need no arguments by default.")
@options.model
@options.as_json
@options.quiet
@options.debug
def compare(**given: Any) -> int:
    """All structures side by side on TABLE, on the same folds, with certified fits and standard errors.

    TableRoles options are those of fit.
    """
    from .comparing import run_compare

    return run_compare(**given)
