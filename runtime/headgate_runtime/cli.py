"""Entry point of the ``headgate`` command.

``worker`` and ``standalone`` with nothing but files are run from here: they run for months, and the
parser of command lines, with what it loads, would take 10 MiB of each worker meanwhile. All else,
help and mistakes included, is for `headgate_runtime.command.parser`.
"""

import sys
from collections.abc import Sequence

from headgate_runtime.command import launch

EXIT_FAILED = 1
EXIT_KILLED = 130


def main() -> None:
    try:
        _run(sys.argv[1:])
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)  # whoever read our output (head, less) has gone
    except KeyboardInterrupt:  # before a command listens to signals
        sys.exit(EXIT_KILLED)


def _run(arguments: Sequence[str]) -> None:
    match arguments:
        case [_, *files] if any(file.startswith("-") for file in files):
            _parse()
        case ["worker", properties]:
            launch.worker(properties)
        case ["standalone", properties, *connectors]:
            launch.standalone(properties, connectors)
        case _:
            _parse()


def _parse() -> None:
    from headgate_runtime.command.parser import app

    app()


if __name__ == "__main__":
    main()
