"""Finds in a Delta table's log whether others have restored or replaced the table.

A RESTORE sets the rows back but leaves the application transactions, which hold a sink's offsets.
So the log is read from a version on at which the sink's rows were known to be there.
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
    """Says which commit removed rows of a sink from the table."""

    version: int
    """Version that removed the rows."""
    source: int
    """Version to which the table was restored. -1: the table was replaced, or it is not known."""

    @property
    def told(self) -> str:
        """Text that says what was done, to follow the table's name."""
        if self.source == NOTHING:
            return f"was restored or replaced by others in version {self.version}"
        return f"was restored to version {self.source} by others in version {self.version}"


@dataclass(frozen=True, slots=True)
class _Commit:
    """The part of a commit that counts here."""

    source: int
    """Version whose rows the commit builds on: mostly the version before."""
    ids: frozenset[str]
    """Ids of the applications that have a transaction in the commit."""


class DeltaLog:
    """The commits of a Delta table. Each is read from the log when it is first asked for."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._read: dict[int, _Commit | None] = {}

    def undone(self, newest: int, since: int, ids: Collection[str]) -> Undone | None:
        """Return which version has undone commits with transactions of `ids`. None: none has.

        Only commits count that were in effect in version `since` or are newer. A version that the
        log does not have any more is taken for an ordinary commit, but a RESTORE that goes back
        behind it counts as having undone rows.
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
        """Return the commit of `version`. None: the log does not have it any more."""
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
        """Yield the actions `txn` and `commitInfo` of a commit. The other lines are not parsed,
        since a commit may have a million actions of files."""
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
        """Return the newest version, up to `last`, that a RESTORE to a time goes back to.

        delta-rs compares that time with the time of the commit's file, Spark with the timestamp
        in the commit. Here a version counts only if neither is later. A commit whose file was
        written in the same millisecond may have come later: it counts as undone.
        """
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
