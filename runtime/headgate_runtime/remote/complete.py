"""Shell completion: names of connectors, from the cluster that the command would ask, and names of
contexts."""

import threading
from typing import Final

import typer

from headgate_runtime.remote import contexts
from headgate_runtime.remote.locate import open_remote
from headgate_runtime.remote.remote import RemoteError

FIND_S: Final = 1.5
"""Longest time to find names, in seconds. A longer wait annoys more than missing names."""


def context_names(incomplete: str) -> list[str]:
    """Return the contexts whose names begin with `incomplete`. There are none if their file cannot
    be read."""
    try:
        return sorted(name for name in contexts.read().by_name if name.startswith(incomplete))
    except RemoteError:
        return []


def connector_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return connectors whose names begin with `incomplete`, without those that were already typed.

    Empty if the cluster is not found, or does not answer within `FIND_S` seconds. Completion never
    prints an error: it would be mixed into the line that the user types.
    """
    url = ctx.params.get("url")
    typed = ctx.params.get("names") or ()
    found: list[str] = []

    def ask() -> None:
        try:
            remote = open_remote(url)
            try:
                names = [row.name for row in remote.rows(incomplete)]
            finally:
                remote.close()
        except Exception:  # whatever it is, an error would be printed into the user's line
            return
        found.extend(names)

    asking = threading.Thread(target=ask, name="complete", daemon=True)
    asking.start()
    asking.join(FIND_S)
    return [name for name in tuple(found) if name not in typed]
