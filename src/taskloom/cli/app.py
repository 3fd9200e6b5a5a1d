"""The commands; the module of a command is imported when the command is run."""

from __future__ import annotations

from importlib import import_module

import click

from taskloom import __version__

COMMANDS = {
    "demo": "compare single-task and multi-task learning on example data",
    "fit": "fit a multi-task model to a table, and compare it with single-task models",
    "predict": "predict the rows of a table with a saved model",
    "inspect": "show the contents of a model file",
    "compare": "compare structures on a table by cross-validation",
    "reproduce": "repeat an experiment of the paper",
}


class Commands(click.Group):
    """Loads a command when it is run; the list of commands needs no imports at all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return getattr(import_module(f".{name}", __package__), name) if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}  # of every command


@click.group(cls=Commands, invoke_without_command=True, context_settings=SETTINGS)
@click.version_option(__version__, message="taskloom %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Learn many related prediction tasks together, and the structure that relates them.

    Start with: taskloom demo
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
