"""The folder that a sink is told to write to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder_fault(path: str | Path) -> str | None:
    """What is wrong with it, as far as can be seen now; None: nothing, perhaps it is not there."""
    try:
        is_file = Path(path).exists() and not Path(path).is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"{str(path)!r} cannot be looked at: {reason}"
    return f"{path} is a file, expected a folder" if is_file else None


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Errors of the disk name `folder` where they name no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error
