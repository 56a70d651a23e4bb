"""Entry point of the ``headgate`` command.

``worker`` and ``standalone`` with only file names as arguments are run from here. They run for
months, and the command-line parser with its imports would cost each worker 10 MiB for all that
time. All other command lines, help and mistakes included, go to `headgate_runtime.command.parser`.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from headgate.errors import MissingExtraError
from headgate_runtime.command import launch
from headgate_runtime.command.extras import missing_extra

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_KILLED = 130


def main() -> None:
    """Run the command that the arguments of this process name.

    This is the only place that tells a user which extra is missing. If a package that is imported
    is not installed, the command ends with one line and exit code 2.
    """
    try:
        _run(sys.argv[1:])
    except MissingExtraError as error:
        _refuse(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _refuse(missing)
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)  # the reader of our output (head, less) has gone
    except KeyboardInterrupt:  # before a command handles signals
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


def _refuse(error: MissingExtraError) -> NoReturn:
    print(f"headgate: {error}", file=sys.stderr)
    sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
