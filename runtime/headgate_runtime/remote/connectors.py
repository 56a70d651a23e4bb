"""``headgate connectors``: lists, files and watches."""

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.ids import State
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.remote import selecting, show
from headgate_runtime.remote.complete import connector_names
from headgate_runtime.remote.files import FileName, Files, MoreFiles, read
from headgate_runtime.remote.notes import tell_notes
from headgate_runtime.remote.options import (
    EXIT_DIFFERS,
    Format,
    Name,
    Names,
    Output,
    RegExp,
    Url,
    refuse,
    remote_at,
    say,
)
from headgate_runtime.remote.remote import (
    NO_WORK,
    Config,
    ConnectorRow,
    Plan,
    Remote,
    RemoteError,
    Work,
    refused,
)

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


@connectors.command(
    "show",
    epilog=example("headgate connectors show orders", "headgate connectors show -e 'orders-.*'"),
)
def show_connector(
    names: Names,
    tasks_config: Annotated[
        bool, typer.Option("--tasks-config", help="With the configs of the tasks.")
    ] = False,
    reg_exp: RegExp = False,
    url: Url = None,
    output: Format = Output.TABLE,
) -> None:
    """Show connectors: config, states, traces of what has failed. JSON: one object for one name,
    else a list."""
    rows: list[ConnectorRow] = []
    with remote_at(url) as remote:
        wanted = selecting.selected(remote, names, reg_exp=reg_exp)
        trouble = selecting.ask_each(remote, wanted, remote.row, lambda _, row: rows.append(row))
        if output is Output.JSON:
            one = len(names) == 1 and not reg_exp
            plain = [show.plain(row) for row in rows]
            if plain or not one:
                say(show.as_json(plain[0] if one else plain))
        elif rows:
            # A cluster that no longer answers is not asked again.
            answers = not isinstance(trouble, RemoteError)
            cluster = remote.cluster() if answers else {"workers": ()}
            work = remote.work(cluster, rows, of_rows=True) if answers else NO_WORK
            shown = (_described(row, cluster, work, tasks_config) for row in rows)
            say("\n\n".join(shown))
        if trouble is not None:
            raise trouble


def _described(
    row: ConnectorRow, cluster: Mapping[str, Any], work: Work, with_task_configs: bool
) -> str:
    lines = [show.one_connector(row, with_task_configs=with_task_configs)]
    workers = {row.worker, *(task.worker for task in row.tasks)}
    lines += [*show.long_calls(work, row.name), *show.unknown_calls(work, workers)]
    return "\n".join([*lines, *show.set_aside(cluster, row.name)])


@connectors.command(epilog=example("headgate connectors create orders.json"))
def create(
    files: Files = None, more: MoreFiles = None, name: FileName = None, url: Url = None
) -> None:
    """Create connectors from files. One that exists already is refused."""
    wanted = {each.name: each for each in read(files, more, name)}

    def made(remote: Remote, name: str) -> str:
        remote.create(name, wanted[name].config, wanted[name].initial_state)
        return "created"

    with remote_at(url) as remote:
        tell_notes(remote, {name: each.config for name, each in wanted.items()})
        selecting.all_of(remote, list(wanted), made)


@connectors.command(
    epilog=example("headgate connectors apply orders.json", "headgate connectors apply folder/")
)
def apply(
    files: Files = None,
    more: MoreFiles = None,
    name: FileName = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="As headgate connectors diff. Exit code 1: has a fault."),
    ] = False,
    url: Url = None,
) -> None:
    """Create connectors from files, or change their configs to what the files say. One that
    somebody else changes meanwhile is refused."""
    wanted = {each.name: each for each in read(files, more, name)}
    with remote_at(url) as remote:
        if dry_run:
            found = _planned(remote, {name: each.config for name, each in wanted.items()})
            if any(row.faults for row in found.rows):
                raise typer.Exit(EXIT_DIFFERS)
            return
        known = {row.name: row for row in remote.rows()}
        configs = {name: row.config for name, row in known.items()}
        tell_notes(remote, {name: each.config for name, each in wanted.items()}, configs)

        def applied(remote: Remote, name: str) -> str:
            row, each = known.get(name), wanted[name]
            if row is None:
                remote.create(name, each.config, each.initial_state)
                return "created"
            if dict(row.config) == dict(each.config):
                return "unchanged"
            remote.put_config(name, each.config, row.etag or _etag_of(remote, row))
            return "changed"

        selecting.all_of(remote, list(wanted), applied)


@connectors.command(epilog=example("headgate connectors edit orders"))
def edit(name: Name, url: Url = None) -> None:
    """Change a connector's config in your editor (EDITOR). If somebody else changes it meanwhile,
    nothing is written, and what you wrote is kept in a file."""
    with remote_at(url) as remote, selecting.offering(remote, name):
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
    files: Files = None,
    more: MoreFiles = None,
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
    wanted = {each.name: each.config for each in read(files, more)}
    with remote_at(url) as remote:
        found = _planned(remote, wanted, prune, output)
    if found.rows:
        raise typer.Exit(EXIT_DIFFERS)


@connectors.command(epilog=example("headgate connectors watch"))
def watch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Names; without them, all.", autocompletion=connector_names
        ),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Beginning of the names.")] = "",
    url: Url = None,
    output: Format = Output.TABLE,
) -> None:
    """Print connectors as they are and each change, until Ctrl-C. JSON: one object a line. By gRPC,
    calls into connectors that hang are told, too."""
    with remote_at(url) as remote:
        for name, row in remote.watch(prefix, names or []):
            if output is Output.JSON:
                found = None if row is None else show.plain(row)
                say(json.dumps({"name": name, "connector": found}, ensure_ascii=False))
            elif row is None:
                say(f"{name}: deleted")
            else:
                calls = show.hanging_calls(row)
                say(f"{name}: {show.state(row)}, tasks: {show.tasks(row)}{calls}")


@connectors.command(epilog=example("headgate connectors wait orders --for RUNNING"))
def wait(
    names: Names,
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="CONDITION",
            help="settled (as it was asked for), deleted, or a state such as RUNNING.",
        ),
    ] = "settled",
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="How long to wait, for all.", min=0.1),
    ] = 60.0,
    url: Url = None,
) -> None:
    """Wait until connectors are as they should be. Exit code 3: not in time."""
    word = condition if condition in ("settled", "deleted") else condition.upper()
    if word not in ("settled", "deleted", *State):
        refuse(f"--for {condition}: expected settled, deleted, or one of {', '.join(State)}")
    until = time.monotonic() + timeout_s
    with remote_at(url) as remote:

        def awaited(name: str) -> ConnectorRow | None:
            # Later ones are looked at once at least.
            left_s = timeout_s if name == names[0] else max(until - time.monotonic(), 0.1)
            return remote.wait(name, word, left_s)

        def told(name: str, row: ConnectorRow | None) -> None:
            say(f"{name}: {'deleted' if row is None else show.state(row)}")

        trouble = selecting.ask_each(remote, list(dict.fromkeys(names)), awaited, told)
        if trouble is not None:
            raise trouble


# -- what they share --


def _planned(
    remote: Remote,
    wanted: Mapping[str, Config],
    prune: str | None = None,
    output: Output = Output.TABLE,
) -> Plan:
    """Return and print the plan for `wanted`."""
    found = remote.plan(wanted, prune)
    if output is Output.JSON:
        say(show.as_json(asdict(found)))
    else:
        told = {row.name for row in found.rows}
        lines = [f"{name} unchanged" for name in wanted if name not in told]
        say("\n".join([*lines, *([show.plan(found)] if found.rows else [])]))
    return found


def _etag_of(remote: Remote, row: ConnectorRow) -> str:
    """Return the etag of a connector that was listed without one, as REST does. Java has none.

    Raises:
        RemoteError: its config is no longer the listed one.
    """
    now = remote.row(row.name)
    if dict(now.config) != dict(row.config):
        text = f"Connector {row.name} has another config than a moment ago; nothing was changed"
        raise refused("ABORTED", text, row.name, "ETAG_MISMATCH")
    return now.etag


def _config_of(text: str) -> dict[str, str | None]:
    """Return the config in a text. Raises ValueError: it is not JSON. RemoteError: it is no
    config."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise RemoteError("expected a JSON object of texts", EXIT_USAGE)
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            raise RemoteError(f"{key} is {value!r}; expected a text or null", EXIT_USAGE)
    return found


def _edited(text: str) -> str:
    """Return `text` after the user has edited it."""
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
