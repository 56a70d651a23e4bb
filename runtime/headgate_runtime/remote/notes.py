"""What is told of a config before it is written, though it is no error."""

from collections.abc import Mapping

import typer

from headgate_runtime.remote.remote import Config, RefusedError, Remote


def tell_notes(
    remote: Remote, wanted: Mapping[str, Config], known: Mapping[str, Config] | None = None
) -> None:
    """A line of standard error for each note of a connector that would change. `known`: the
    configs that are there.

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
        return  # the change itself will say what is wrong
    for name, key, text in found:
        typer.echo(f"note: {name}: {key}: {text}", err=True)
