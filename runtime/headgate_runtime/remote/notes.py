"""Notes on a config before it is written, which are no errors."""

from collections.abc import Mapping

import typer

from headgate_runtime.remote.remote import Config, RefusedError, Remote


def tell_notes(
    remote: Remote, wanted: Mapping[str, Config], known: Mapping[str, Config] | None = None
) -> None:
    """Print each note on a connector that would change, as a line of standard error. `known` has
    the present configs.

    Raises:
        RemoteError: the cluster does not answer.
    """
    there = known or {}
    changing = {
        name: config
        for name, config in wanted.items()
        if name not in there or dict(there[name]) != dict(config)
    }
    if not changing:
        return
    try:
        found = remote.notes(changing)
    except RefusedError:
        return  # the change itself reports what is wrong
    for name, key, text in found:
        typer.echo(f"note: {name}: {key}: {text}", err=True)
