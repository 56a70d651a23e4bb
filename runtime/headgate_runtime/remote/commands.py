"""``headgate status``, ``connectors``, ``tasks``, ``offsets`` and ``loggers``.

Exit codes: 0 it is done; 1 it was refused, has failed, or (``diff``) differs; 2 wrong usage, or no
cluster was found; 3 what was waited for has not come about in time.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeAlias

import typer

from headgate.ids import State, TargetState
from headgate.task.messages import TaskKind
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.remote import show
from headgate_runtime.remote.complete import connector_names
from headgate_runtime.remote.locate import VARIABLE, open_remote
from headgate_runtime.remote.remote import (
    LISTED,
    ConnectorRow,
    LateError,
    RefusedError,
    Remote,
    RemoteError,
    refused,
)

HEADING: Final = "Operate a running cluster"
EXIT_DIFFERS: Final = 1
EXIT_USAGE: Final = 2
EXIT_LATE: Final = 3


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=VARIABLE,
        metavar="ADDRESS",
        help="grpc://HOST:PORT, grpcs://HOST:PORT, unix:PATH, or http(s)://HOST:PORT of a Connect "
        "worker; without it, the headgate up of this folder.",
    ),
]
Format: TypeAlias = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Name: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the connector.", autocompletion=connector_names),
]
Names: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Names of connectors.", autocompletion=connector_names),
]
Files: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Connectors: JSON or properties, as for standalone."),
]

DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
]

Deleted: TypeAlias = Annotated[
    TaskKind | None,
    typer.Option("--deleted", help="What a deleted connector of this type has left."),
]

connectors = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="List, change and watch connectors.",
    epilog=example("headgate connectors list", "headgate connectors pause orders"),
)
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


def status(url: Url = None, output: Format = Output.TABLE) -> None:
    """Show the workers and the connectors of a cluster, and the last batches of its sinks."""
    with remote_at(url) as remote:
        cluster, rows = remote.cluster(), remote.rows()
        work = remote.work(cluster, rows)
        if output is Output.JSON:
            shown = [show.plain(row) for row in rows]
            told = {"batches": work.batches, "long_calls": work.long_calls}
            _print(show.as_json({**cluster, "connectors": shown, **told}))
        else:
            _print(show.status(cluster, rows, remote.where, work))


def plugins(name: str | None, url: str, *, as_json: bool) -> None:
    """Print the classes that a worker has, or the options of one."""
    with remote_at(url) as remote, _or_here():
        if name is None:
            found = remote.plugins()
            _print(show.as_json(found) if as_json else show.plugins(found))
        else:
            keys = remote.plugin(name)
            _print(show.as_json(keys) if as_json else show.plugin(keys))


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


# -- connectors --


@connectors.command("list", epilog=example("headgate connectors list"))
def list_connectors(
    prefix: Annotated[str, typer.Option("--prefix", help="Beginning of the names.")] = "",
    state: Annotated[
        list[State] | None,
        typer.Option(
            "--state", help="The connector or one of its tasks has it.", case_sensitive=False
        ),
    ] = None,
    url: Url = None,
    output: Format = Output.TABLE,
) -> None:
    """List connectors with their states."""
    with remote_at(url) as remote:
        rows = remote.rows(prefix, [each.value for each in state or ()])
        if output is Output.JSON:
            _print(show.as_json([show.plain(row) for row in rows]))
        else:
            _print(show.connectors(rows))


@connectors.command("show", epilog=example("headgate connectors show orders"))
def show_connector(name: Name, url: Url = None, output: Format = Output.TABLE) -> None:
    """Show a connector: config, states, traces of what has failed."""
    with remote_at(url) as remote:
        row = remote.row(name)
        if output is Output.JSON:
            _print(show.as_json(show.plain(row)))
        else:
            cluster = remote.cluster()
            calls = show.long_calls(remote.work(cluster, [row]), name)
            _print("\n".join([show.one_connector(row), *calls, *show.set_aside(cluster, name)]))


@connectors.command(epilog=example("headgate connectors create orders.json"))
def create(files: Files, url: Url = None) -> None:
    """Create connectors from files. One that exists already is refused."""
    wanted = _read(files)
    with remote_at(url) as remote:
        for each in wanted:
            remote.create(each.name, each.config, each.initial_state)
            _print(f"{each.name} created")


@connectors.command(epilog=example("headgate connectors apply orders.json payments.json"))
def apply(files: Files, url: Url = None) -> None:
    """Create connectors from files, or change their configs to what the files say. One that
    somebody else changes meanwhile is refused."""
    wanted = _read(files)
    with remote_at(url) as remote:
        known = {row.name: row for row in remote.rows()}
        for each in wanted:
            row = known.get(each.name)
            if row is None:
                remote.create(each.name, each.config, each.initial_state)
                _print(f"{each.name} created")
            elif dict(row.config) == dict(each.config):
                _print(f"{each.name} unchanged")
            else:
                etag = row.etag or _etag_of(remote, row)
                remote.put_config(each.name, each.config, etag)
                _print(f"{each.name} changed")


@connectors.command(epilog=example("headgate connectors edit orders"))
def edit(name: Name, url: Url = None) -> None:
    """Change a connector's config in your editor (EDITOR). If somebody else changes it meanwhile,
    nothing is written, and what you wrote is kept in a file."""
    with remote_at(url) as remote:
        row = remote.row(name)
        before = json.dumps(dict(row.config), indent=2, ensure_ascii=False) + "\n"
        after = _edited(before)
        if after == before:
            _print(f"{name} unchanged")
            return
        try:
            remote.put_config(name, _config_of(after), row.etag)
        except (RemoteError, ValueError) as error:
            handle, kept = tempfile.mkstemp(prefix=f"{name.replace('/', '_')}-", suffix=".json")
            os.close(handle)
            Path(kept).write_text(after, encoding="utf-8")
            code = error.exit_code if isinstance(error, RemoteError) else EXIT_USAGE
            refuse(f"{error}\n  what you wrote is in {kept}", code)
        _print(f"{name} changed")


@connectors.command(epilog=example("headgate connectors diff orders.json"))
def diff(
    files: Files,
    prune: Annotated[
        str | None,
        typer.Option(
            "--prune",
            metavar="PREFIX",
            help="Show others whose names begin so as to be deleted.",
        ),
    ] = None,
    url: Url = None,
    output: Format = Output.TABLE,
) -> None:
    """Show what would come of apply: changes key by key, faults, and what would move to other
    workers. Nothing is written. Exit code 1: something would change, or has a fault."""
    wanted = {each.name: each.config for each in _read(files)}
    with remote_at(url) as remote:
        found = remote.plan(wanted, prune)
        if output is Output.JSON:
            _print(show.as_json(asdict(found)))
        else:
            told = {row.name for row in found.rows}
            lines = [f"{name} unchanged" for name in wanted if name not in told]
            _print("\n".join([*lines, *([show.plan(found)] if found.rows else [])]))
    if found.rows:
        raise typer.Exit(EXIT_DIFFERS)


@connectors.command(epilog=example("headgate connectors pause orders"))
def pause(names: Names, url: Url = None) -> None:
    """Pause connectors and their tasks."""
    _set_target_states(names, TargetState.PAUSED, "paused", url)


@connectors.command(epilog=example("headgate connectors resume orders"))
def resume(names: Names, url: Url = None) -> None:
    """Resume paused or stopped connectors."""
    _set_target_states(names, TargetState.STARTED, "resumed", url)


@connectors.command(epilog=example("headgate connectors stop orders"))
def stop(names: Names, url: Url = None) -> None:
    """Stop connectors: they keep their configs and give up their tasks."""
    _set_target_states(names, TargetState.STOPPED, "stopped", url)


@connectors.command(epilog=example("headgate connectors restart orders --tasks --only-failed"))
def restart(
    names: Names,
    include_tasks: Annotated[bool, typer.Option("--tasks", help="Restart the tasks, too.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Restart only what has failed.")
    ] = False,
    url: Url = None,
) -> None:
    """Restart connectors, and their tasks if you say so."""
    _each(
        names,
        lambda remote, name: remote.restart(
            name, include_tasks=include_tasks, only_failed=only_failed
        ),
        "restarted",
        url,
    )


@connectors.command(epilog=example("headgate connectors delete orders"))
def delete(names: Names, url: Url = None) -> None:
    """Delete connectors. Their offsets stay."""
    _each(names, lambda remote, name: remote.delete(name), "deleted", url)


@connectors.command(epilog=example("headgate connectors watch"))
def watch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]", help="Names; without them, all.", autocompletion=connector_names
        ),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Beginning of the names.")] = "",
    url: Url = None,
    output: Format = Output.TABLE,
) -> None:
    """Print connectors as they are and each change, until Ctrl-C. JSON: one object a line."""
    with remote_at(url) as remote:
        for name, row in remote.watch(prefix, names or []):
            if output is Output.JSON:
                found = None if row is None else show.plain(row)
                _print(json.dumps({"name": name, "connector": found}, ensure_ascii=False))
            elif row is None:
                _print(f"{name}: deleted")
            else:
                _print(f"{name}: {show.state(row)}, tasks: {show.tasks(row)}")


@connectors.command(epilog=example("headgate connectors wait orders --for RUNNING"))
def wait(
    name: Name,
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="CONDITION",
            help="settled (as it was asked for), deleted, or a state such as RUNNING.",
        ),
    ] = "settled",
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait.", min=0.1)
    ] = 60.0,
    url: Url = None,
) -> None:
    """Wait until a connector is as it should be. Exit code 3: not in time."""
    word = condition if condition in ("settled", "deleted") else condition.upper()
    if word not in ("settled", "deleted", *State):
        refuse(f"--for {condition}: expected settled, deleted, or one of {', '.join(State)}")
    with remote_at(url) as remote:
        row = remote.wait(name, word, timeout_s)
        _print(f"{name}: {'deleted' if row is None else show.state(row)}")


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
            _print(f"{name}-{number} restarted")


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
        _print(show.as_json({"offsets": found}) if as_json else show.offsets(found))


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
            _print(show.offset_differences(remote.offset_differences(name, changes)))
        else:
            _print(remote.alter_offsets(name, changes))


@offsets.command("reset", epilog=example("headgate offsets reset orders"))
def reset_offsets(
    name: Name, deleted: Deleted = None, dry_run: DryRun = False, url: Url = None
) -> None:
    """Forget all offsets of a stopped connector, or of a deleted one: it begins from the start."""
    with remote_at(url) as remote, _maybe_deleted("reset", name):
        if deleted is not None and dry_run:
            found = remote.deleted_offset_differences(name, deleted)
            _print(show.offset_differences(found))
        elif deleted is not None:
            _print(remote.reset_deleted_offsets(name, deleted))
        elif dry_run:
            _print(show.offset_differences(remote.offset_differences(name, None)))
        else:
            _print(remote.reset_offsets(name))


# -- loggers --


@loggers.command("list", epilog=example("headgate loggers list"))
def list_loggers(url: Url = None, output: Format = Output.TABLE) -> None:
    """List the loggers that have a level of their own."""
    with remote_at(url) as remote:
        found = remote.loggers()
        if output is Output.JSON:
            _print(show.as_json(found))
        else:
            _print(show.table(("LOGGER", "LEVEL"), found.items()))


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
        _print("\n".join(changed) if this_worker else f"{logger} is {level.upper()} on all workers")


# -- what they share --


def _etag_of(remote: Remote, row: ConnectorRow) -> str:
    """Etag of a connector that a listing has shown without one, as REST's do. Java has none.

    Raises:
        RemoteError: its config is not the one that was listed any more.
    """
    now = remote.row(row.name)
    if dict(now.config) != dict(row.config):
        text = f"Connector {row.name} has another config than a moment ago; nothing was changed"
        raise refused("ABORTED", text, row.name, "ETAG_MISMATCH")
    return now.etag


def _set_target_states(names: list[str], state: TargetState, word: str, url: str | None) -> None:
    _each(names, lambda remote, name: remote.set_target_state(name, state), word, url)


def _each(
    names: list[str], change: Callable[[Remote, str], None], word: str, url: str | None
) -> None:
    """Change each of them. A refused one does not stop the others; the code is then its own."""
    with remote_at(url) as remote:
        code = 0
        for name in dict.fromkeys(names):
            try:
                change(remote, name)
            except RefusedError as error:
                typer.echo(f"headgate: {error}", err=True)
                code = error.exit_code
            else:
                _print(f"{name} {word}")
    if code:
        raise typer.Exit(code)


@contextlib.contextmanager
def remote_at(url: str | None) -> Iterator[Remote]:
    """The cluster; what it refuses ends the command."""
    remote: Remote | None = None
    try:
        remote = open_remote(url)
        yield remote
    except LateError as error:
        refuse(str(error), EXIT_LATE)
    except RemoteError as error:
        refuse(str(error), error.exit_code)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        if remote is not None:
            remote.close()


def _read(files: list[str]) -> list[Any]:
    from headgate_runtime.config.connector_files import ConnectorFileError, read_connector_file

    try:
        return [read_connector_file(path) for path in files]
    except ConnectorFileError as error:
        refuse(f"{error}\n  next: nothing was asked; mend the file")


def _config_of(text: str) -> dict[str, str | None]:
    """Raises ValueError: it is not JSON. RemoteError: it is no config."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise RemoteError("expected a JSON object of texts", EXIT_USAGE)
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            raise RemoteError(f"{key} is {value!r}; expected a text or null", EXIT_USAGE)
    return found


def _edited(text: str) -> str:
    """What the user's editor makes of `text`."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*editor, str(file)], check=False).returncode
        except OSError as error:
            refuse(f"the editor {editor[0]} cannot be run: {error.strerror}\n  next: set EDITOR")
        if code != 0:
            refuse(f"the editor {editor[0]} ended with code {code}; nothing was changed", code=1)
        return file.read_text(encoding="utf-8")


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


def _print(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")
    sys.stdout.flush()


def refuse(message: str, code: int = EXIT_USAGE) -> NoReturn:
    typer.echo(f"headgate: {message}", err=True)
    raise typer.Exit(code)
