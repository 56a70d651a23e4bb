"""Reads the log files of a Delta table: one JSON file for each version, one action a line.

Source: the protocol of Delta Lake.
"""

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_VERSION: Final = re.compile(r"(\d{20})\.(?:json|checkpoint\..*)")
NOTHING: Final = -1
"""Stands for the version of a table that does not exist."""


def commit_file(table: Path, version: int) -> Path:
    """Return the path of the commit of `version`. The log may not have it any more."""
    return _folder(table) / f"{version:020}.json"


def newest(table: Path) -> int:
    """Return the newest version that the log has, or `NOTHING` if there is no table."""
    try:
        names = [entry.name for entry in _folder(table).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING
    found = [int(match[1]) for name in names if (match := _VERSION.fullmatch(name))]
    return max(found, default=NOTHING)


def actions(table: Path, version: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the actions of a commit in order, each with the CRC-32 of the file up to the end of its
    line. An empty line gives an empty action.

    Raises:
        FileNotFoundError: the log does not have the commit.
        ValueError: a line is not JSON.
    """
    crc = 0
    with commit_file(table, version).open("rb") as lines:
        for line in lines:
            crc = zlib.crc32(line, crc)
            yield (json.loads(line) if line.strip() else {}), crc


def checksum(table: Path, version: int) -> int | None:
    """Return the CRC-32 of the commit of `version`. None: the log does not have it any more."""
    crc = 0
    try:
        with commit_file(table, version).open("rb") as lines:
            for line in lines:
                crc = zlib.crc32(line, crc)
    except FileNotFoundError:
        return None
    return crc


def _folder(table: Path) -> Path:
    return table / "_delta_log"
