"""``taskloom inspect``."""

from __future__ import annotations

import click

from . import options


@click.command()
@click.argument("model", type=click.Path())
@click.option("--all-tasks", is_flag=True, help="Show every task, however many.")
@options.as_json
@options.quiet
@options.debug
def inspect(model: str, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    """What is in the file MODEL: tasks, settings, and the certificate with its gap."""
    from .inspecting import run_inspect

    return run_inspect(model, all_tasks, as_json, quiet)
