"""``headgate status``, ``tasks``, ``offsets`` and ``loggers``.

Exit codes: 0 it is done; 1 it was refused, has failed, or (``diff``) differs; 2 wrong usage, or no
cluster was found; 3 the awaited condition has not come about in time.
"""

import contextlib
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from headgate.task.messages import TaskKind
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.plugins.matching import matches
from headgate_runtime.remote import changes, context_commands, patch, selecting, show
from headgate_runtime.remote.connectors import connectors
from headgate_runtime.remote.options import (
    HEADING,
    DryRun,
    Format,
    Name,
    Names,
    Output,
    Url,
    refuse,
    remote_at,
    say,
)
from headgate_runtime.remote.remote import LISTED, RefusedError, Remote, RemoteError

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
            told = {
                "batches": work.batches,
                "long_calls": work.long_calls,
                "calls_unknown": work.unknown,
            }
            say(show.as_json({**cluster, "connectors": shown, **told}))
        else:
            say(show.status(cluster, rows, remote.where, work))


def plugins(
    name: str | None,
    url: str,
    *,
    as_json: bool,
    kinds: Collection[str] = (),
    search: re.Pattern[str],
) -> None:
    """Print the classes that a worker has, or the options of one."""
    with remote_at(url) as remote, _or_here():
        if name is None:
            found = [
                each for each in remote.plugins() if not kinds or str(each["type"]).lower() in kinds
            ]
            say(show.as_json(found) if as_json else show.plugins(found))
        else:
            keys = [
                each
                for each in remote.plugin(name)
                if matches(search, each["name"], each.get("documentation"))
            ]
            say(show.as_json(keys) if as_json else show.plugin(keys))


@contextlib.contextmanager
def _or_here() -> Iterator[None]:
    """Tell a user without an answer that `--local` lists the classes installed here."""
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
        list[int] | None, typer.Argument(metavar="TASK", help="Numbers of tasks.")
    ] = None,
    url: Url = None,
) -> None:
    """Restart tasks of a connector: orders 0 1, or one by its whole name: orders-0 or orders/0."""
    if not numbers:
        whole = name
        parts = re.fullmatch(r"(.+)[-/](\d+)", whole, re.ASCII)
        if parts is None:
            refuse(f"which tasks of {whole}?\n  next: headgate tasks restart {whole} 0", EXIT_USAGE)
        name, numbers = parts[1], [int(parts[2])]

    def restarted(remote: Remote, task: str) -> str:
        remote.restart_task(name, int(task.rpartition("-")[2]))
        return "restarted"

    with remote_at(url) as remote:
        selecting.all_of(remote, [f"{name}-{number}" for number in numbers], restarted)


# -- offsets --


@contextlib.contextmanager
def _maybe_deleted(action: str, name: str) -> Iterator[None]:
    """Tell a user whose connector is not found how to ask for a deleted one: offsets outlive it."""
    try:
        yield
    except RefusedError as error:
        if not str(error).endswith(LISTED):
            raise
        text = f"{error}; if it was deleted: headgate offsets {action} {name} --deleted source"
        raise RefusedError(f"{text} (or sink)", error.exit_code) from None


@offsets.command("show", epilog=example("headgate offsets show orders -o json"))
def show_offsets(
    names: Names, deleted: Deleted = None, url: Url = None, output: Format = Output.TABLE
) -> None:
    """Show the offsets of connectors. JSON: of several connectors, an object by name."""
    found: dict[str, Sequence[Mapping[str, Any]]] = {}
    wanted = list(dict.fromkeys(names))
    with remote_at(url) as remote:

        def asked(name: str) -> Sequence[Mapping[str, Any]]:
            with _maybe_deleted("show", name):
                if deleted is None:
                    return remote.offsets(name)
                return remote.deleted_offsets(name, deleted)

        trouble = selecting.ask_each(remote, wanted, asked, found.__setitem__)
        if output is Output.JSON:
            plain = {name: {"offsets": each} for name, each in found.items()}
            if plain or len(wanted) > 1:
                say(show.as_json(plain if len(wanted) > 1 else plain[wanted[0]]))
        elif len(wanted) > 1:
            shown = [f"{name}\n{show.offsets(each)}" for name, each in found.items()]
            if shown:
                say("\n\n".join(shown))
        elif found:
            say(show.offsets(found[wanted[0]]))
        if trouble is not None:
            raise trouble


@offsets.command(
    "set",
    epilog=example(
        "headgate offsets set orders offsets.json --dry-run",
        "headgate offsets set copy --topic orders --partition 0 --offset 42",
        """headgate offsets set in --partition '{"filename": "a"}' --offset '{"position": 0}'""",
    ),
)
def set_offsets(
    name: Name,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help='{"offsets": [{"partition": ..., "offset": ...}]}; - for stdin.'
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Of a sink, instead of a file.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", metavar="JSON", help="Instead of a file: with --topic a number."
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="JSON", help="Of that partition; null forgets it."),
    ] = None,
    dry_run: DryRun = False,
    url: Url = None,
) -> None:
    """Change offsets of a stopped connector. FILE has the form that show -o json prints. A single
    offset may be given by options instead."""
    if (file is None) == (partition is None) or (partition is None) != (offset is None):
        text = "give a file, or --partition and --offset, with --topic for a sink"
        refuse(f"{text}\n  next: headgate offsets set --help has examples", EXIT_USAGE)
    if file is not None and topic is not None:
        refuse("--topic goes with --partition and --offset, and not with a file", EXIT_USAGE)
    if file is not None:
        changes = _offset_changes(file)
    else:
        changes = [_offset_change(topic, str(partition), str(offset))]
    with remote_at(url) as remote, selecting.offering(remote, name):
        if dry_run:
            say(show.offset_differences(remote.offset_differences(name, changes)))
        else:
            say(remote.alter_offsets(name, changes))


@offsets.command("reset", epilog=example("headgate offsets reset orders"))
def reset_offsets(
    names: Names, deleted: Deleted = None, dry_run: DryRun = False, url: Url = None
) -> None:
    """Forget all offsets of stopped connectors, or of deleted ones: they begin from the start.
    Nobody is asked, and nothing brings them back: look with --dry-run first."""

    def reset(remote: Remote, name: str) -> str:
        with _maybe_deleted("reset", name):
            if deleted is not None and dry_run:
                found = remote.deleted_offset_differences(name, deleted)
                return show.offset_differences(found)
            if deleted is not None:
                return remote.reset_deleted_offsets(name, deleted)
            if dry_run:
                return show.offset_differences(remote.offset_differences(name, None))
            return remote.reset_offsets(name)

    with remote_at(url) as remote:
        if len(names) == 1:
            with selecting.offering(remote, names[0]):
                say(reset(remote, names[0]))
        else:
            selecting.all_of(remote, list(dict.fromkeys(names)), reset, between=":\n")


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


@loggers.command("show", epilog=example("headgate loggers show headgate.task"))
def show_level(
    logger: Annotated[str, typer.Argument(metavar="LOGGER", help="root is above all others.")],
    url: Url = None,
) -> None:
    """Show the level of a logger: its own, or that of the nearest one above it."""
    with remote_at(url) as remote:
        levels = remote.loggers()
        above = [".".join(logger.split(".")[:end]) for end in range(logger.count(".") + 1, 0, -1)]
        has = next((each for each in (*above, "root") if each in levels), None)
        if has is None:
            refuse(f"no level of {logger} is known\n  next: headgate loggers list", code=1)
        say(f"{logger} is {levels[has]}" + (f", as {has}" if has != logger else ""))


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


def _offset_change(topic: str | None, partition: str, offset: str) -> tuple[object, object]:
    """Return a partition, of a sink's topic or of a source, and its offset."""
    try:
        where, there = json.loads(partition), json.loads(offset)
    except ValueError as error:
        refuse(f"--partition and --offset: expected JSON: {error}\n  next: quote it for the shell")
    if topic is None:
        return where, there
    numbers = isinstance(where, int) and (there is None or isinstance(there, int))
    if not numbers:
        refuse("with --topic, --partition and --offset are numbers, or --offset is null")
    return (
        {"kafka_topic": topic, "kafka_partition": where},
        None if there is None else {"kafka_offset": there},
    )
