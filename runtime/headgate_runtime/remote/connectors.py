"""``headgate connectors``: lists, files, and what is watched."""

import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from headgate.ids import State
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.remote import show
from headgate_runtime.remote.complete import connector_names
from headgate_runtime.remote.options import (
    EXIT_DIFFERS,
    EXIT_USAGE,
    Format,
    Name,
    Output,
    Url,
    refuse,
    remote_at,
    say,
)
from headgate_runtime.remote.remote import ConnectorRow, Remote, RemoteError, refused

Files: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Connectors: JSON or properties, as for standalone."),
]

connectors = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="List, change and watch connectors.",
    epilog=example("headgate connectors list", "headgate connectors pause orders"),
)


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
            say(show.as_json([show.plain(row) for row in rows]))
        else:
            say(show.connectors(rows))


@connectors.command("show", epilog=example("headgate connectors show orders"))
def show_connector(name: Name, url: Url = None, output: Format = Output.TABLE) -> None:
    """Show a connector: config, states, traces of what has failed."""
    with remote_at(url) as remote:
        row = remote.row(name)
        if output is Output.JSON:
            say(show.as_json(show.plain(row)))
        else:
            cluster = remote.cluster()
            calls = show.long_calls(remote.work(cluster, [row]), name)
            say("\n".join([show.one_connector(row), *calls, *show.set_aside(cluster, name)]))


@connectors.command(epilog=example("headgate connectors create orders.json"))
def create(files: Files, url: Url = None) -> None:
    """Create connectors from files. One that exists already is refused."""
    wanted = _read(files)
    with remote_at(url) as remote:
        for each in wanted:
            remote.create(each.name, each.config, each.initial_state)
            say(f"{each.name} created")


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
                say(f"{each.name} created")
            elif dict(row.config) == dict(each.config):
                say(f"{each.name} unchanged")
            else:
                etag = row.etag or _etag_of(remote, row)
                remote.put_config(each.name, each.config, etag)
                say(f"{each.name} changed")


@connectors.command(epilog=example("headgate connectors edit orders"))
def edit(name: Name, url: Url = None) -> None:
    """Change a connector's config in your editor (EDITOR). If somebody else changes it meanwhile,
    nothing is written, and what you wrote is kept in a file."""
    with remote_at(url) as remote:
        row = remote.row(name)
        before = json.dumps(dict(row.config), indent=2, ensure_ascii=False) + "\n"
        after = _edited(before)
        if after == before:
            say(f"{name} unchanged")
            return
        try:
            remote.put_config(name, _config_of(after), row.etag)
        except (RemoteError, ValueError) as error:
            handle, kept = tempfile.mkstemp(prefix=f"{name.replace('/', '_')}-", suffix=".json")
            os.close(handle)
            Path(kept).write_text(after, encoding="utf-8")
            code = error.exit_code if isinstance(error, RemoteError) else EXIT_USAGE
            refuse(f"{error}\n  what you wrote is in {kept}", code)
        say(f"{name} changed")


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
            say(show.as_json(asdict(found)))
        else:
            told = {row.name for row in found.rows}
            lines = [f"{name} unchanged" for name in wanted if name not in told]
            say("\n".join([*lines, *([show.plan(found)] if found.rows else [])]))
    if found.rows:
        raise typer.Exit(EXIT_DIFFERS)


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
                say(json.dumps({"name": name, "connector": found}, ensure_ascii=False))
            elif row is None:
                say(f"{name}: deleted")
            else:
                say(f"{name}: {show.state(row)}, tasks: {show.tasks(row)}")


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
        say(f"{name}: {'deleted' if row is None else show.state(row)}")


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
