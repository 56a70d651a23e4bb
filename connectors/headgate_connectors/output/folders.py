"""Checks and errors of the folder that a sink writes to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder_fault(path: str | Path) -> str | None:
    """Return what is wrong with the folder as far as can be seen now. None: nothing is. A folder
    that does not exist is no fault."""
    try:
        is_file = Path(path).exists() and not Path(path).is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"{str(path)!r} cannot be looked at: {reason}"
    return f"{path} is a file, expected a folder" if is_file else None


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Put the name of `folder` into each OSError from inside that names no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error
