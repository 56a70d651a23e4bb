"""``headgate connectors patch``: changes some keys of a connector's config, and leaves the others.

The leader merges (KIP-477), so no change that another client makes meanwhile is lost.
"""

from typing import Annotated, Final

import typer

from headgate.connector.nearest import nearest
from headgate.herder.privileged import merged
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.command.help import example
from headgate_runtime.remote import selecting, show
from headgate_runtime.remote.connectors import connectors
from headgate_runtime.remote.options import (
    EXIT_DIFFERS,
    DryRun,
    Name,
    RegExp,
    Url,
    refuse,
    remote_at,
)
from headgate_runtime.remote.remote import Remote

EXAMPLE: Final = example("headgate connectors patch orders tasks.max=4 --remove topics.regex")


def register() -> None:
    """Add the command to those of ``headgate connectors``."""
    connectors.command(epilog=EXAMPLE)(patch)


def patch(
    name: Name,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Keys to set; KEY= sets an empty text."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="KEY", help="A key to remove; may be given repeatedly."),
    ] = None,
    dry_run: DryRun = False,
    reg_exp: RegExp = False,
    url: Url = None,
) -> None:
    """Change some keys of a connector's config. The others stay as they are, whoever changes them
    meanwhile. With --reg-exp, of all connectors whose names match. Exit code 1 of --dry-run: the
    change would be refused."""
    changes = _changes(name, pairs or [], remove or [], reg_exp=reg_exp)

    def patched(remote: Remote, name: str) -> str:
        before = remote.row(name).config if remove else {}
        remote.patch_config(name, changes)
        said = "changed"
        for key in (key for key in remove or [] if key not in before):
            meant = nearest(key, before)
            said += f"\n  it had no {key}" + (f"; did you mean {meant}?" if meant else "")
        return said

    with remote_at(url) as remote:
        names = selecting.selected(remote, [name], reg_exp=reg_exp)
        if not dry_run:
            selecting.all_of(remote, names, patched)
            return
        wanted = {each: merged(each, remote.row(each).config, changes) for each in names}
        found = remote.plan(wanted, None)
    told = {row.name for row in found.rows}
    lines = [f"{each} would not change" for each in names if each not in told]
    typer.echo("\n".join([*lines, *([show.plan(found)] if found.rows else [])]))
    if any(row.faults for row in found.rows):
        raise typer.Exit(EXIT_DIFFERS)


def _changes(
    name: str, pairs: list[str], remove: list[str], *, reg_exp: bool
) -> dict[str, str | None]:
    """Return the new values by key. None: the key is to be removed. Each key may be named once."""
    changes: dict[str, str | None] = {}
    split = [(pair, *pair.partition("=")) for pair in pairs]
    for at, (pair, key, sign, _) in enumerate(split):
        if not sign or not key:
            after = split[at + 1][0] if at + 1 < len(split) else ""
            meant = f"did you mean {pair}={after}? " * bool(key and after and "=" not in after)
            text = f"{pair}: expected KEY=VALUE\n  next: {meant}--remove KEY removes a key"
            refuse(text, EXIT_USAGE)
    wanted = [(key, value) for _, key, _, value in split]
    for key, value in [*wanted, *((key, None) for key in remove)]:
        if key in changes:
            refuse(f"{key} is given twice\n  next: nothing was asked; name it once", EXIT_USAGE)
        changes[key] = value
    if not changes:
        refuse(f"no key is given\n  next: headgate connectors patch {name} KEY=VALUE", EXIT_USAGE)
    if "name" in changes and (reg_exp or changes["name"] != name):
        refuse(f"{name} keeps its name\n  next: create another connector", EXIT_USAGE)
    return changes
