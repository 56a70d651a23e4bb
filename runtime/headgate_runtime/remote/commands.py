"""``headgate status``, ``tasks``, ``offsets`` and ``loggers``.

Exit codes: 0 it is done; 1 it was refused, has failed, or (``diff``) differs; 2 wrong usage, or no
cluster was found; 3 what was waited for has not come about in time.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from headgate.task.messages import TaskKind
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.remote import changes, context_commands, patch, show
from headgate_runtime.remote.connectors import connectors
from headgate_runtime.remote.options import (
    EXIT_USAGE,
    HEADING,
    DryRun,
    Format,
    Name,
    Output,
    Url,
    refuse,
    remote_at,
    say,
)
from headgate_runtime.remote.remote import LISTED, RefusedError, RemoteError

Deleted: TypeAlias = Annotated[
    TaskKind | None,
    typer.Option("--deleted", help="What a deleted connector of this type has left."),
]

tasks = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Restart tasks.",
    epilog=example("headgate tasks restart orders 0"),
)
offsets = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Show and change a connector's offsets.",
    epilog=example("headgate offsets show orders"),
)
loggers = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Show and set log levels.",
    epilog=example("headgate loggers list"),
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command(rich_help_panel=HEADING, epilog=example("headgate status"))(status)
    parts = {"connectors": connectors, "tasks": tasks, "offsets": offsets, "loggers": loggers}
    for name, commands in parts.items():
        app.add_typer(commands, name=name, rich_help_panel=HEADING)
    changes.register()
    patch.register()
    context_commands.register(app)


def status(url: Url = None, output: Format = Output.TABLE) -> None:
    """Show the workers and the connectors of a cluster, and the last batches of its sinks."""
    with remote_at(url) as remote:
        cluster, rows = remote.cluster(), remote.rows()
        work = remote.work(cluster, rows)
        if output is Output.JSON:
            shown = [show.plain(row) for row in rows]
            told = {"batches": work.batches, "long_calls": work.long_calls}
            say(show.as_json({**cluster, "connectors": shown, **told}))
        else:
            say(show.status(cluster, rows, remote.where, work))


def plugins(name: str | None, url: str, *, as_json: bool) -> None:
    """Print the classes that a worker has, or the options of one."""
    with remote_at(url) as remote, _or_here():
        if name is None:
            found = remote.plugins()
            say(show.as_json(found) if as_json else show.plugins(found))
        else:
            keys = remote.plugin(name)
            say(show.as_json(keys) if as_json else show.plugin(keys))


@contextlib.contextmanager
def _or_here() -> Iterator[None]:
    """Who is not answered is told that what is installed here can be listed without."""
    try:
        yield
    except RefusedError:
        raise
    except RemoteError as error:
        here = "headgate plugins --local lists what is installed here"
        raise RemoteError(f"{error}; {here}", error.exit_code) from None


# -- tasks --


@tasks.command("restart", epilog=example("headgate tasks restart orders 0"))
def restart_task(
    name: Name,
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="TASK...", help="Numbers of tasks.")
    ] = None,
    url: Url = None,
) -> None:
    """Restart tasks of a connector: orders 0 1, or one by its whole name: orders-0."""
    if not numbers:
        whole = name
        name, _, last = whole.rpartition("-")
        if not name or not last.isdecimal():
            refuse(f"which tasks of {whole}?\n  next: headgate tasks restart {whole} 0", EXIT_USAGE)
        numbers = [int(last)]
    with remote_at(url) as remote:
        for number in numbers:
            remote.restart_task(name, number)
            say(f"{name}-{number} restarted")


# -- offsets --


@contextlib.contextmanager
def _maybe_deleted(action: str, name: str) -> Iterator[None]:
    """Offsets outlive their connector: who does not find it is told how to ask for them."""
    try:
        yield
    except RemoteError as error:
        if not str(error).endswith(LISTED):
            raise
        text = f"{error}; if it was deleted: headgate offsets {action} {name} --deleted source"
        raise RemoteError(f"{text} (or sink)", error.exit_code) from None


@offsets.command("show", epilog=example("headgate offsets show orders -o json"))
def show_offsets(
    name: Name, deleted: Deleted = None, url: Url = None, output: Format = Output.TABLE
) -> None:
    """Show the offsets of a connector."""
    with remote_at(url) as remote, _maybe_deleted("show", name):
        found = remote.offsets(name) if deleted is None else remote.deleted_offsets(name, deleted)
        as_json = output is Output.JSON
        say(show.as_json({"offsets": found}) if as_json else show.offsets(found))


@offsets.command("set", epilog=example("headgate offsets set orders offsets.json --dry-run"))
def set_offsets(
    name: Name,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help='{"offsets": [{"partition": ..., "offset": ...}]}; - for stdin.'
        ),
    ],
    dry_run: DryRun = False,
    url: Url = None,
) -> None:
    """Change offsets of a stopped connector. FILE has the form that show -o json prints."""
    changes = _offset_changes(file)
    with remote_at(url) as remote:
        if dry_run:
            say(show.offset_differences(remote.offset_differences(name, changes)))
        else:
            say(remote.alter_offsets(name, changes))


@offsets.command("reset", epilog=example("headgate offsets reset orders"))
def reset_offsets(
    name: Name, deleted: Deleted = None, dry_run: DryRun = False, url: Url = None
) -> None:
    """Forget all offsets of a stopped connector, or of a deleted one: it begins from the start."""
    with remote_at(url) as remote, _maybe_deleted("reset", name):
        if deleted is not None and dry_run:
            found = remote.deleted_offset_differences(name, deleted)
            say(show.offset_differences(found))
        elif deleted is not None:
            say(remote.reset_deleted_offsets(name, deleted))
        elif dry_run:
            say(show.offset_differences(remote.offset_differences(name, None)))
        else:
            say(remote.reset_offsets(name))


# -- loggers --


@loggers.command("list", epilog=example("headgate loggers list"))
def list_loggers(url: Url = None, output: Format = Output.TABLE) -> None:
    """List the loggers that have a level of their own."""
    with remote_at(url) as remote:
        found = remote.loggers()
        if output is Output.JSON:
            say(show.as_json(found))
        else:
            say(show.table(("LOGGER", "LEVEL"), found.items()))


@loggers.command("set", epilog=example("headgate loggers set headgate.task DEBUG"))
def set_level(
    logger: Annotated[str, typer.Argument(metavar="LOGGER", help="root is above all others.")],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARN, ERROR ...")],
    this_worker: Annotated[
        bool, typer.Option("--this-worker", help="Not on the other workers of the cluster.")
    ] = False,
    url: Url = None,
) -> None:
    """Set the level of a logger and of those below it, on all workers."""
    with remote_at(url) as remote:
        changed = remote.set_level(logger, level, cluster=not this_worker)
        say("\n".join(changed) if this_worker else f"{logger} is {level.upper()} on all workers")


def _offset_changes(file: str) -> list[tuple[object, object]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = json.loads(text)
        return [(each["partition"], each["offset"]) for each in found["offsets"]]
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        refuse(
            f'{file}: expected {{"offsets": [{{"partition": {{...}}, "offset": {{...}}}}]}}\n'
            "  next: headgate offsets show NAME -o json prints this form"
        )
