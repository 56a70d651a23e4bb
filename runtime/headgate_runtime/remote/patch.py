"""``headgate connectors patch``: changes some keys of a connector's config, and leaves the others.

The leader merges (KIP-477), so a change that somebody else makes meanwhile is not lost.
"""

from typing import Annotated, Final

import typer

from headgate.connector.nearest import nearest
from headgate.herder.privileged import merged
from headgate_runtime.command.help import example
from headgate_runtime.remote import show
from headgate_runtime.remote.connectors import connectors
from headgate_runtime.remote.options import (
    EXIT_DIFFERS,
    EXIT_USAGE,
    DryRun,
    Name,
    Url,
    refuse,
    remote_at,
)

EXAMPLE: Final = example("headgate connectors patch orders tasks.max=4 --remove topics.regex")


def register() -> None:
    """Add the command to those of ``headgate connectors``."""
    connectors.command(epilog=EXAMPLE)(patch)


def patch(
    name: Name,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE...]", help="Keys to set; KEY= sets an empty text."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="KEY", help="A key to remove; may be given repeatedly."),
    ] = None,
    dry_run: DryRun = False,
    url: Url = None,
) -> None:
    """Change some keys of a connector's config. The others stay as they are, whoever changes them
    meanwhile. Exit code 1 of --dry-run: the change would be refused."""
    changes = _changes(name, pairs or [], remove or [])
    with remote_at(url) as remote:
        if not dry_run:
            before = remote.row(name).config if remove else {}
            remote.patch_config(name, changes)
            typer.echo(f"{name} changed")
            for key in (key for key in remove or [] if key not in before):
                meant = nearest(key, before)
                typer.echo(f"  it had no {key}" + (f"; did you mean {meant}?" if meant else ""))
            return
        found = remote.plan({name: merged(name, remote.row(name).config, changes)}, None)
    typer.echo(show.plan(found) if found.rows else f"{name} would not change")
    if any(row.faults for row in found.rows):
        raise typer.Exit(EXIT_DIFFERS)


def _changes(name: str, pairs: list[str], remove: list[str]) -> dict[str, str | None]:
    """New values by key; None: the key is to be removed. A key is named once."""
    changes: dict[str, str | None] = {}
    split = [(pair, *pair.partition("=")) for pair in pairs]
    for pair, key, sign, _ in split:
        if not sign or not key:
            refuse(f"{pair}: expected KEY=VALUE\n  next: --remove KEY removes a key", EXIT_USAGE)
    wanted = [(key, value) for _, key, _, value in split]
    for key, value in [*wanted, *((key, None) for key in remove)]:
        if key in changes:
            refuse(f"{key} is given twice\n  next: nothing was asked; name it once", EXIT_USAGE)
        changes[key] = value
    if not changes:
        refuse(f"no key is given\n  next: headgate connectors patch {name} KEY=VALUE", EXIT_USAGE)
    if changes.get("name", name) != name:
        refuse(f"{name} keeps its name\n  next: create another connector", EXIT_USAGE)
    return changes
