"""Runs a worker in this process until it is stopped. It needs no command-line parser."""

import sys
from collections.abc import Callable, Sequence
from functools import partial


def worker(properties: str) -> None:
    """Run ``headgate worker``. Return when the worker was stopped cleanly; exit otherwise."""
    from headgate_runtime.command.worker import run

    _until_stopped(partial(run, properties))


def standalone(properties: str, connectors: Sequence[str]) -> None:
    """Run ``headgate standalone`` in the same way."""
    from headgate_runtime.command.standalone import run

    _until_stopped(partial(run, properties, connectors))


def _until_stopped(run: Callable[[], None]) -> None:
    from headgate_runtime.command.worker import CommandError

    try:
        run()
    except CommandError as error:
        print(f"headgate: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
