"""What others have done to a Delta table, as its log tells: restored or replaced.

A RESTORE sets the rows back and leaves the application transactions, which are a sink's offsets. So
the log is read from a version on at which all was well.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from headgate_connectors.tables.delta_log import NOTHING, commit_file


@dataclass(frozen=True, slots=True)
class Undone:
    """Rows of a sink that are not in the table any more."""

    version: int
    """Version that undid them."""
    source: int
    """Version that the table was restored to; -1: it was replaced, or that is not known."""

    @property
    def told(self) -> str:
        """What was done, to follow the table's name."""
        if self.source == NOTHING:
            return f"was restored or replaced by others in version {self.version}"
        return f"was restored to version {self.source} by others in version {self.version}"


@dataclass(frozen=True, slots=True)
class _Commit:
    source: int
    """Version whose rows it goes on from; mostly the one before it."""
    ids: frozenset[str]
    """Applications that have a transaction in it."""


class DeltaLog:
    """The commits of a table, read from its log as they are asked for."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._read: dict[int, _Commit | None] = {}

    def undone(self, newest: int, since: int, ids: Collection[str]) -> Undone | None:
        """What has undone commits with transactions of `ids`, each of which was there in version
        `since`, or is newer. None: nothing has.

        Nothing is claimed of versions that the log does not have any more, but that a RESTORE
        which passes over such a version has undone rows.
        """
        kept: set[int] = set()
        jumps: list[Undone] = []
        at = newest
        while at > since:
            kept.add(at)
            commit = self._commit(at)
            source = at - 1 if commit is None else commit.source
            if source != at - 1:
                jumps.append(Undone(at, source))
            at = source
        if not jumps:
            return None
        for version in chain(range(since + 1, newest), range(since, at, -1)):
            commit = self._commit(version)
            if version not in kept and (commit is None or not commit.ids.isdisjoint(ids)):
                return next(one for one in reversed(jumps) if one.version > version)
        return None

    def _commit(self, version: int) -> _Commit | None:
        """None: the log does not have it any more."""
        if version not in self._read:
            try:
                actions = list(self._actions(version))
            except FileNotFoundError:
                self._read[version] = None
            else:
                infos = [each["commitInfo"] for each in actions if "commitInfo" in each]
                source = self._source(version, infos[0]) if infos else version - 1
                ids = frozenset(each["txn"]["appId"] for each in actions if "txn" in each)
                self._read[version] = _Commit(source, ids)
        return self._read[version]

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        """The actions of a commit that count here; one may have those of a million files."""
        with commit_file(self._table, version).open(encoding="utf-8") as lines:
            for line in lines:
                if '"txn"' in line or '"commitInfo"' in line:
                    yield json.loads(line)

    def _source(self, version: int, info: dict[str, Any]) -> int:
        operation = str(info.get("operation", ""))
        if operation.startswith(("CREATE OR REPLACE TABLE", "REPLACE TABLE")):
            return NOTHING
        if operation != "RESTORE":
            return version - 1
        given: dict[str, Any] = info.get("operationParameters") or {}
        try:
            if given.get("version") is not None:
                return int(str(given["version"]).strip('"'))
            return self._version_at(int(given["datetime"]), version - 1)
        except (KeyError, ValueError):  # Spark names a time in words
            return NOTHING

    def _version_at(self, milliseconds: int, last: int) -> int:
        """The newest version of that time, up to `last`: delta-rs goes by files, Spark by what the
        commits say. A commit is older than both. One of the same millisecond may have come later:
        it counts as undone."""
        for version in range(last, NOTHING, -1):
            try:
                changed = commit_file(self._table, version).stat().st_mtime * 1000
                infos = [each.get("commitInfo", {}) for each in self._actions(version)]
            except FileNotFoundError:
                break
            said = max((each.get("timestamp", 0) for each in infos), default=0)
            if max(changed, said) <= milliseconds:
                return version
        return NOTHING
