"""``headgate apply PIPELINE.toml``: brings the `headgate up` that runs on the file's data folder to
what the file says now."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate_runtime.command.help import PIPELINE, example
from headgate_runtime.remote import show
from headgate_runtime.remote.locate import SOCKET, refuse_unserved
from headgate_runtime.remote.notes import tell_notes
from headgate_runtime.remote.options import EXIT_DIFFERS, HEADING, refuse, remote_at
from headgate_runtime.remote.remote import Config, Remote, RemoteError

EXAMPLE: Final = example("headgate apply pipeline.toml --diff", "headgate apply pipeline.toml")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(rich_help_panel=HEADING, epilog=EXAMPLE)(apply)


def apply(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE.toml", help="The file that headgate up runs.")
    ] = PIPELINE,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Only show what would change. Exit code 1: something would."),
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that are not in the file.")
    ] = False,
) -> None:
    """Change a running 'headgate up' to what its pipeline file says now.

    Creates the connectors that are new in the file, and changes those whose config is another.
    Workers and their settings are read at the next start.
    """
    from headgate_runtime.up.forecast import unlike, unwritten_topics
    from headgate_runtime.up.loading import loaded
    from headgate_runtime.up.references import resolved

    wanted = loaded(pipeline, "changed")
    address = _address(wanted.data, pipeline)
    with remote_at(address) as remote:
        known = {row.name: row.config for row in remote.rows()}
        gone = [name for name in known if name not in wanted.connectors]
        stay = {} if prune else known
        configs = {**stay, **wanted.connectors}
        topics = {topic for row in map(remote.row, known) for topic in row.topics}
        found = {name: resolved(config) for name, config in configs.items()}
        for line in (*unwritten_topics(found, topics), *unlike(found, wanted.settings)):
            typer.echo(f"warning: {line}", err=True)
        if diff:
            _show(remote, wanted.connectors, gone if prune else [])
        else:
            tell_notes(remote, wanted.connectors, known)
            _change(remote, known, wanted.connectors, gone if prune else [])
    for name in gone if not prune else ():
        typer.echo(f"{name} is not in the file and stays (--prune deletes)")


def _address(data: Path, pipeline: str) -> str:
    if not (data / SOCKET).is_socket():
        try:
            refuse_unserved(data)
        except RemoteError as error:
            refuse(str(error))
        refuse(f"no headgate up runs on {data}\n  next: start one: headgate up {pipeline}")
    # Sockets have short names: at most some 100 bytes.
    near = os.path.relpath(data / SOCKET)
    return f"unix:{min(str(data / SOCKET), near, key=len)}"


def _change(
    remote: Remote, known: Mapping[str, Config], wanted: Mapping[str, Config], gone: list[str]
) -> None:
    for name in gone:
        remote.delete(name)
        typer.echo(f"{name} deleted")
    for name, config in wanted.items():
        if name in known and dict(known[name]) == dict(config):
            typer.echo(f"{name} unchanged")
            continue
        made = remote.put_config(name, config)
        typer.echo(f"{name} {'created' if made else 'changed'}")


def _show(remote: Remote, wanted: Mapping[str, Config], gone: list[str]) -> None:
    found = remote.plan(wanted, None)
    told = {row.name for row in found.rows}
    lines = [f"{name} would be deleted" for name in gone]
    lines += [f"{name} unchanged" for name in wanted if name not in told]
    typer.echo("\n".join([*lines, *([show.plan(found)] if found.rows else [])]))
    if gone or found.rows:
        raise typer.Exit(EXIT_DIFFERS)
