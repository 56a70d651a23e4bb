"""What is told of a config before it is written, though it is no error."""

from collections.abc import Mapping

import typer

from headgate_runtime.remote.remote import Config, Remote, RemoteError


def tell_notes(remote: Remote, wanted: Mapping[str, Config]) -> None:
    """A line of standard error for each note of a connector that would change."""
    try:
        found = remote.plan(wanted, None)
    except RemoteError:
        return  # the change itself will say what is wrong
    for row in found.rows:
        for key, text in row.notes:
            typer.echo(f"note: {row.name}: {key}: {text}", err=True)
