"""``headgate connector new``: a project to write a connector in."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.command.help import WRITE, Guessing, example

commands = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Begin a connector of your own.",
    epilog=example("headgate connector new acme-queue"),
)


class Kind(StrEnum):
    SOURCE = "source"
    SINK = "sink"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(commands, name="connector", rich_help_panel=WRITE)


@commands.callback()
def connector() -> None:
    """Begin a connector of your own."""


@commands.command(
    epilog=example(
        "headgate connector new acme-queue", "headgate connector new acme-table --kind sink"
    )
)
def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the project: lower case letters, digits and hyphens."
        ),
    ],
    kind: Annotated[
        Kind, typer.Option("--kind", help="Whether it reads (source) or writes (sink).")
    ] = Kind.SOURCE,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where the project's folder is made.")
    ] = Path(),
) -> None:
    """Make a project with a connector that works and passes its tests.

    It has the entry point that `connector.class` finds it by, and tests that kill, stop and move
    its task at every point. Replace what it reads or writes by your own.
    """
    from headgate_runtime.command.new_project import ProjectError, make_project

    try:
        made = make_project(name, kind.value, folder)
    except ProjectError as error:
        typer.echo(f"headgate: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    typer.echo(
        f"made {made}\n\n"
        f"  cd {made}\n"
        "  pip install -e '.[test]'\n"
        "  pytest\n"
        "  headgate up pipeline.toml --until-idle\n\n"
        "Do this in the environment that this headgate is installed in: pip looks for what is\n"
        "missing on PyPI, where the project headgate is another one."
    )
