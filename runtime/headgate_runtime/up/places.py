"""Folders and files that a pipeline names, checked before anything starts.

Unless Spark runs elsewhere, all tasks run on this machine. A place that is missing now would be
missing for them, too.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Final


class Kind(Enum):
    READ_FOLDER = auto()
    READ_FILE = auto()
    WRITE_FILE = auto()
    WRITE_FOLDER = auto()
    READ_TABLE = auto()
    READ_ANY = auto()
    """A file, a folder or a pattern: only the reader can tell whether it exists."""


PLACES: Final[Mapping[str, tuple[str, Kind]]] = {
    "DirectorySource": ("path", Kind.READ_FOLDER),
    "FileStreamSource": ("file", Kind.READ_FILE),
    "FileStreamSink": ("file", Kind.WRITE_FILE),
    "DirectorySink": ("path", Kind.WRITE_FOLDER),
    "DeltaSource": ("path", Kind.READ_TABLE),
    "DeltaSink": ("path", Kind.WRITE_FOLDER),
    "SparkFileSink": ("path", Kind.WRITE_FOLDER),
    "SparkSink": ("path", Kind.WRITE_FOLDER),
    "SparkSource": ("path", Kind.READ_ANY),
}
"""Class of a connector -> the option that is a path, and its use."""
_JAVA: Final = re.compile(
    r"org\.apache\.kafka\.connect\.file\.(FileStream(?:Source|Sink))Connector"
)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_GLOB: Final = re.compile(r"[*?]|\[[^\]]+\]")


@dataclass(frozen=True, slots=True)
class Said:
    """A message about a path."""

    key: str
    text: str
    fault: bool = True
    """False: the path may be meant so."""


def _place(config: Mapping[str, str]) -> tuple[str, Kind] | None:
    name = config.get("connector.class", "")
    java = _JAVA.fullmatch(name)
    return PLACES.get(java[1] if java else name)


def home_expanded(config: Mapping[str, str]) -> dict[str, str]:
    """Return `config` with the home folder in place of a leading ``~`` in its path."""
    found = _place(config)
    if found is None or not config.get(found[0], "").lstrip().startswith("~"):
        return dict(config)
    return {**config, found[0]: str(home(config[found[0]].strip()))}


def home(text: str) -> Path:
    """Return `text` with the home folder in place of a leading ``~``. If no user has that name,
    return it as it is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def unexpanded(path: str) -> str:
    """Return a message about a path with an unexpanded ``~``. Empty: it has none."""
    if not path.startswith("~"):
        return ""
    return (
        f"{path} begins with ~, which is expanded in the file itself, for users of this machine; "
        "write the whole path"
    )


def is_there(path: Path) -> bool:
    """Return whether the path exists.

    Raises:
        OSError: it cannot be told: a folder above may not be searched, or the name is too long.
        ValueError: the text has a character that no path can have.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def look_at(config: Mapping[str, str], folder: Path, made: Path | None = None) -> Said | None:
    """Return what is wrong with the path that a connector's config names. Relative paths start in
    `folder`. The folder `made` exists by the time connectors start."""
    found = _place(config)
    if found is None:
        return None
    key, kind = found
    text = config.get(key, "").strip()
    if not text or "://" in text:
        return None
    try:
        return _looked_at(key, kind, text, folder / text, made)
    except OSError as error:
        return Said(key, f"{text} cannot be looked at: {error.strerror}")
    except ValueError as error:
        return Said(key, f"{text!r} is no path: {error}")


def _looked_at(key: str, kind: Kind, text: str, path: Path, made: Path | None) -> Said | None:
    if (left := unexpanded(text)) and not is_there(path):
        return Said(key, left)
    if kind is Kind.READ_ANY:
        return _variable(key, text, path)
    said = _read(text, path, kind) if kind in _READ else None
    said = said or (_written(text, path, kind, made) if kind not in _READ else None)
    if said is None:
        return None
    return _variable(key, text, path) or replace(said, key=key)


def _variable(key: str, text: str, path: Path) -> Said | None:
    """Return a message about a shell-like variable in a path that does not exist."""
    found = _VARIABLE.search(text)
    if found is None or is_there(path):
        return None
    about = f"{found[0]} is not expanded; write ${{env:{found[1] or found[2]}}}"
    return Said(key, f"{text}: {about}")


_READ: Final = (Kind.READ_FOLDER, Kind.READ_FILE, Kind.READ_TABLE)


def _read(text: str, path: Path, kind: Kind) -> Said | None:
    wanted = "file" if kind is Kind.READ_FILE else "folder"
    if is_there(path):
        if kind is Kind.READ_FOLDER and not path.is_dir():
            return Said("", f"{text} is a file, expected a folder; include picks files in one")
        if kind is Kind.READ_FILE and path.is_dir():
            return Said("", f"{text} is a folder, expected a file; DirectorySource reads folders")
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            return Said("", f"{text} may not be read by this user")
        return None
    if kind is Kind.READ_TABLE:
        return Said("", f"there is no table {text} yet; its task waits for it", fault=False)
    if _GLOB.search(text):
        above, pattern = os.path.split(text)
        if kind is Kind.READ_FOLDER:
            hint = f'name the folder and what to take of it: path = "{above or "."}", '
            return Said("", f'{text} is no folder; {hint}include = "{pattern}"')
        hint = "DirectorySource reads many, by its include"
        return Said("", f"{text} is no file, and patterns are not expanded; {hint}")
    if kind is Kind.READ_FILE and path.parent.is_dir():
        return Said("", f"there is no file {text} yet; its task waits for it", fault=False)
    return Said("", f"there is no {wanted} {_shown(text, path)}{_nearest_above(path)}")


def _written(text: str, path: Path, kind: Kind, made: Path | None) -> Said | None:
    if kind is Kind.WRITE_FILE:
        if path.is_dir():
            return Said("", f"{text} is a folder, expected a file")
        above = path.parent
        if above != made and not above.is_dir():
            return Said("", f"there is no folder {above} to write {path.name} to{_made(above)}")
        return _unwritable(path if is_there(path) else above)
    above = next((each for each in (path, *path.parents) if is_there(each)), path)
    if above == path and is_there(path) and not path.is_dir():
        return Said("", f"{text} is a file, expected a folder")
    if above != path and not above.is_dir():
        return Said("", f"there can be no folder {text}: {above} is a file")
    return _unwritable(above)


def _unwritable(path: Path) -> Said | None:
    """Return a message if `path` exists and may not be written to. A missing path is made before it
    is used."""
    if not is_there(path) or os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0)):
        return None
    return Said("", f"{path} may not be written to by this user")


def _shown(text: str, path: Path) -> str:
    return text if path == Path(text) else f"{text} ({path})"


def _nearest_above(path: Path) -> str:
    """Return words about the nearest existing folder above the path."""
    above = next((each for each in path.parents if is_there(each)), None)
    return f"; {above} is there" if above is not None and above != path.parent else ""


def _made(folder: Path) -> str:
    return f"; make it: mkdir -p {folder}"
