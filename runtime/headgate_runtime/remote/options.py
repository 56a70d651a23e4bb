"""What commands that operate a cluster share: options, the cluster itself, and the handling of
errors."""

import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, NoReturn, TypeAlias

import typer

from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote.complete import connector_names, context_names
from headgate_runtime.remote.locate import VARIABLE, open_remote
from headgate_runtime.remote.remote import LateError, Remote, RemoteError

HEADING: Final = "Operate a running cluster"
EXIT_DIFFERS: Final = 1
EXIT_LATE: Final = 3


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--context",
        envvar=VARIABLE,
        metavar="ADDRESS|CONTEXT",
        help="grpc://HOST:PORT, grpcs://HOST:PORT, unix:PATH, http(s)://HOST:PORT of a Connect "
        "worker, or the name of a context; without it, the headgate up of this folder, else the "
        "current context.",
        autocompletion=context_names,
    ),
]
Format: TypeAlias = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Name: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the connector.", autocompletion=connector_names),
]
Names: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help="Names of connectors.", autocompletion=connector_names),
]
RegExp: TypeAlias = Annotated[
    bool,
    typer.Option(
        "-e",
        "--reg-exp",
        help="NAME is a regular expression: of whole names, quoted for the shell.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
]


@contextlib.contextmanager
def remote_at(url: str | None) -> Iterator[Remote]:
    """Yield the cluster. An error of it ends the command."""
    remote: Remote | None = None
    with told():
        try:
            remote = open_remote(url)
            yield remote
        finally:
            if remote is not None:
                remote.close()


@contextlib.contextmanager
def told() -> Iterator[None]:
    """End the command at an error."""
    try:
        yield
    except LateError as error:
        refuse(str(error), EXIT_LATE)
    except RemoteError as error:
        refuse(str(error), error.exit_code)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def say(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    typer.echo(f"headgate: {text}", err=True)


def refuse(message: str, code: int = EXIT_USAGE) -> NoReturn:
    complain(message)
    raise typer.Exit(code)
