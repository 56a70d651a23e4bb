"""The log of a Delta table as the files that it is: one of JSON for each version, one action a
line. Source: the protocol of Delta Lake.
"""

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_VERSION: Final = re.compile(r"(\d{20})\.(?:json|checkpoint\..*)")
NOTHING: Final = -1
"""Version of a table that is not there."""


def commit_file(table: Path, version: int) -> Path:
    """Where the commit of `version` is, if the log still has it."""
    return _folder(table) / f"{version:020}.json"


def newest(table: Path) -> int:
    """The newest version that the log names; `NOTHING`: there is no table."""
    try:
        names = [entry.name for entry in _folder(table).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING
    found = [int(match[1]) for name in names if (match := _VERSION.fullmatch(name))]
    return max(found, default=NOTHING)


def actions(table: Path, version: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The actions of a commit in their order, each with the CRC-32 of the file up to its end. An
    empty line is an action without a name.

    Raises:
        FileNotFoundError: the log does not have the commit.
        ValueError: a line is no JSON.
    """
    crc = 0
    with commit_file(table, version).open("rb") as lines:
        for line in lines:
            crc = zlib.crc32(line, crc)
            yield (json.loads(line) if line.strip() else {}), crc


def checksum(table: Path, version: int) -> int | None:
    """CRC-32 of the commit of `version`; None: the log does not have it any more."""
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
