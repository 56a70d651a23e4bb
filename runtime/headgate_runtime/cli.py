"""Entry point of the ``headgate`` command.

``worker`` and ``standalone`` with nothing but files are run from here: they run for months, and the
parser of command lines, with what it loads, would take 10 MiB of each worker meanwhile. All else,
help and mistakes included, is for `headgate_runtime.command.parser`.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial

EXIT_FAILED = 1
EXIT_KILLED = 130


def main() -> None:
    try:
        _run(sys.argv[1:])
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)  # whoever read our output (head, less) has gone
    except KeyboardInterrupt:  # before a command listens to signals
        sys.exit(EXIT_KILLED)


def worker(properties: str) -> None:
    """``headgate worker``: returns when the worker was stopped cleanly, else exits."""
    from headgate_runtime.command.worker import run

    _until_stopped(partial(run, properties))


def standalone(properties: str, connectors: Sequence[str]) -> None:
    """``headgate standalone``, likewise."""
    from headgate_runtime.command.standalone import run

    _until_stopped(partial(run, properties, connectors))


def _run(arguments: Sequence[str]) -> None:
    match arguments:
        case [_, *files] if any(file.startswith("-") for file in files):
            _parse()
        case ["worker", properties]:
            worker(properties)
        case ["standalone", properties, *connectors]:
            standalone(properties, connectors)
        case _:
            _parse()


def _parse() -> None:
    from headgate_runtime.command.parser import app

    app()


def _until_stopped(run: Callable[[], None]) -> None:
    from headgate_runtime.command.worker import CommandError

    try:
        run()
    except CommandError as error:
        print(f"headgate: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
