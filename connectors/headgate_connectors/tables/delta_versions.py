"""The versions of a Delta table as steps of a source: the rows that each version added.

The first step may be the whole table at one version, as delta-rs loads it. All later steps are read
from the table's log, commit by commit: the files that the commit added with `dataChange`. A commit
that removes or rewrites rows is refused, or skipped as a whole.

A source offset holds the CRC-32 of the newest commit that was read. So the source notices that the
table was replaced, or was set back to an older version and written to since.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from headgate_connectors.tables import delta_log
from headgate_connectors.tables.data_file import ParquetData, local
from headgate_connectors.tables.delta_state import (
    TableState,
    check_protocol,
    load,
    partition_value,
)
from headgate_connectors.tables.source import (
    FROM,
    WHOLE,
    DataFile,
    Share,
    Step,
    TableSourceError,
    told_of,
)

_AHEAD: Final = 64
"""Maximum commits that are read ahead at a time."""
_AHEAD_FILES: Final = 10_000
"""With this many files, no further commit is read ahead."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A parsed source offset."""

    version: int
    begin: str
    id: str | None
    """Id of the table. None: a user has altered the offset."""
    log: int | None
    """CRC-32 of the newest commit that was read or begun. None: a user has altered the offset, or
    the log did not have the commit."""
    inside: bool
    """The offset is within the version: some of its rows were read."""

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> "_Place":
        version = int(offset["version"])
        begin = str(offset.get("begin") or f"{FROM} {version}")
        return cls(version, begin, offset.get("id"), offset.get("log"), "file" in offset)

    @property
    def is_whole(self) -> bool:
        return self.begin == f"{WHOLE} {self.version}"

    @property
    def logged(self) -> int:
        """Version of the commit whose CRC-32 is `log`."""
        return self.version if self.inside or self.is_whole else self.version - 1


@dataclass(slots=True)
class _Commit:
    """One commit of the table's log, parsed."""

    version: int
    state: TableState
    """State of the table after the commit."""
    crc: int = 0
    operation: str = "a commit without a name"
    files: list[DataFile] = field(default_factory=list[DataFile])
    """Files of the share that the commit added."""
    added: int = 0
    removed: int = 0
    """Number of files, of all shares, whose rows the commit added (`added`) or removed."""
    fault: TableSourceError | None = None
    """Why the commit cannot be read. None: it can."""

    @property
    def changes_rows(self) -> bool:
        """Whether the commit does more than add new rows."""
        restored = self.operation == "RESTORE" or (self.version and "REPLACE" in self.operation)
        return self.removed > 0 or bool(restored and self.added)


class DeltaSteps:
    """The steps of one share of the Delta table in a folder."""

    def __init__(
        self, table: Path, share: Share, log: Callable[[str], None], *, skips: bool
    ) -> None:
        """
        Args:
            log: called with messages for users.
            skips: skip versions that take rows away. Otherwise they are an error.
        """
        self._table = table
        self._share = share
        self._log = log
        self._skips = skips
        self._state: TableState | None = None
        """State of the table before the version that is read next. None: no offset was looked at
        yet."""
        self._loaded: Any = None
        """The `DeltaTable` of `_state`, kept until the step of the whole table is made from it."""
        self._crc: int | None = None
        """CRC-32 of the commit before the next one. None: it is not known."""
        self._ahead: deque[_Commit] = deque()
        self._told_missing = False

    @property
    def _name(self) -> str:
        return f"the table at {self._table}"

    # -- where it begins --

    def begin(self, begin: str) -> Mapping[str, Any] | None:
        version, newest = int(begin.partition(" ")[2]), delta_log.newest(self._table)
        if newest == delta_log.NOTHING:
            if not self._told_missing:
                self._log(f"there is no Delta table at {self._table} yet: it is awaited")
                self._told_missing = True
            return None
        if version > newest + 1:
            raise TableSourceError(
                f"{self._name} is at version {newest}, and is to be read from version {version} "
                "on: set starting.version to one that is there, or to latest"
            )
        place = _Place(version, begin, None, None, inside=False)
        state = self._resume(place)
        self._crc = delta_log.checksum(self._table, place.logged)
        return _offset(version, begin, state.id, self._crc)

    def _resume(self, place: _Place) -> TableState:
        """Load the table's state for the version that is read next, and check that the table still
        is the one in the offset.

        Raises:
            TableSourceError: the table is gone, was replaced or set back, or the version is no
                longer in the log.
        """
        newest = delta_log.newest(self._table)
        if newest == delta_log.NOTHING:
            raise TableSourceError(
                f"{self._name} is gone: it was dropped or moved. Put it back, then restart the task"
            )
        if place.logged > newest:
            raise self._set_back(newest, place.logged)
        gone = not delta_log.commit_file(self._table, place.version).exists()
        if gone and place.version <= newest and not place.is_whole:
            raise self._missing(place.version, newest)
        self._check_log(place.logged, place.log)
        loaded, state = self._load(place, min(place.version, newest))
        self._check_id(state, place.id)
        self._state = state
        self._crc = place.log if place.logged < place.version else None
        self._loaded = loaded if place.is_whole else None
        return state

    def _load(self, place: _Place, version: int) -> tuple[Any, TableState]:
        fault = f"version {version} of {self._name} cannot be loaded"
        try:
            loaded = load(self._table, version)
        except TableSourceError as error:
            loaded, fault = None, str(error)
        if loaded is None:
            if place.is_whole:
                text = f"{fault}: its log was cleaned up before all of it was read"
                fault = f"{text}. {_ways_on(version)}"
            raise TableSourceError(fault)
        try:
            return loaded, TableState.loaded(loaded)
        except TableSourceError as error:
            raise told_of(self._name, error) from error

    def _check_log(self, version: int, expected: int | None) -> None:
        """Raise `TableSourceError` if the commit of `version` is not the one that was read."""
        if expected is None:
            return
        found = delta_log.checksum(self._table, version)
        if found is not None and found != expected:
            raise TableSourceError(
                f"{self._name} is another one than was read: the commit of its version {version} "
                f"is not the same. It was made anew, or set back and written on. {_ANEW}"
            )

    def _check_id(self, state: TableState, expected: str | None) -> None:
        if expected is not None and state.id != expected:
            raise TableSourceError(
                f"{self._name} was replaced: its id is {state.id}, and rows of {expected} were "
                f"read. {_ANEW}"
            )

    def _set_back(self, newest: int, read: int) -> TableSourceError:
        return TableSourceError(
            f"{self._name} is at version {newest}, but version {read} of it was read: it was made "
            f"anew or set back. {_ANEW}"
        )

    def _missing(self, version: int, newest: int) -> TableSourceError:
        there = (
            found
            for found in range(version + 1, newest + 1)
            if delta_log.commit_file(self._table, found).exists()
        )
        last = next(there, newest + 1) - 1
        which = f"version {version} is" if last == version else f"versions {version} to {last} are"
        return TableSourceError(
            f"{which} no longer in the log of {self._name}, which was cleaned up "
            f"(delta.logRetentionDuration) before the source had read so far. {_ways_on(last)}"
        )

    # -- steps --

    def next(self, offset: Mapping[str, Any]) -> Step | None:
        place = _Place.of(offset)
        state = self._state or self._resume(place)
        if place.is_whole:
            return self._whole(place, state)
        commit = self._commit(place.version, state)
        return None if commit is None else self._step(commit, place)

    def _whole(self, place: _Place, state: TableState) -> Step:
        told = f"{self._name} as of version {place.version}"
        try:
            files = self._files_of(self._loaded, state)
        except TableSourceError as error:
            raise told_of(told, error) from error
        self._loaded = None
        self._crc = delta_log.checksum(self._table, place.version)
        return self._made(told, place, state, self._crc, files)

    def _files_of(self, table: Any, state: TableState) -> list[DataFile]:
        """Return the files of a `DeltaTable` that belong to the share, the oldest first."""
        adds = pa.table(table.get_add_actions())
        columns = ("path", "size_bytes", "modification_time", "num_records")
        rows = zip(*(adds.column(name).to_pylist() for name in columns), strict=True)
        values = adds.column("partition") if state.partition_by else [{}] * len(adds)
        found: list[tuple[int, str, DataFile]] = []
        for (path, size, changed, count), given in zip(rows, values, strict=True):
            place = _place_of(path)
            if self._share.has(place):
                constants = {
                    name: given[name].cast(state.columns.field(name).type)
                    for name in state.partition_by
                }
                opener = local(self._table / place)
                data = ParquetData(path, opener, state.columns, constants, size, count)
                found.append((changed, path, data))
        return [file for _, _, file in sorted(found, key=lambda each: each[:2])]

    def _step(self, commit: _Commit, place: _Place) -> Step:
        if commit.fault is not None:
            raise commit.fault
        told = f"version {commit.version} of {self._name}"
        self._check_id(commit.state, place.id)
        files: Sequence[DataFile] = commit.files
        if commit.changes_rows:
            text = (
                f"{told} ({commit.operation}) takes rows away or rewrites them: it removes "
                f"{commit.removed} files and adds {commit.added}"
            )
            if not self._skips:
                raise TableSourceError(
                    f"{text}. A source only gives rows that are new. Set on.change = skip to pass "
                    f"over such versions, and what they add. {_ANEW}"
                )
            self._log(f"{text}; it is passed over, with what it adds, as on.change is skip")
            files = ()
        return self._made(told, place, commit.state, commit.crc, files)

    def _made(
        self,
        told: str,
        place: _Place,
        state: TableState,
        crc: int | None,
        files: Sequence[DataFile],
    ) -> Step:
        version, begin = place.version, place.begin
        return Step(
            told,
            _offset(version, begin, state.id, crc),
            files,
            state.schema,
            _offset(version + 1, begin, state.id, crc),
            _ways_on(version),
        )

    # -- the log --

    def _commit(self, version: int, state: TableState) -> _Commit | None:
        """Return the commit of `version`. None: there is none yet."""
        if not self._ahead:
            self._read_ahead(version, state)
        if not self._ahead:
            return None
        commit = self._ahead.popleft()
        assert commit.version == version, "steps follow each other"
        self._state, self._crc = commit.state, commit.crc
        return commit

    def _read_ahead(self, version: int, state: TableState) -> None:
        files = 0
        for each in range(version, version + _AHEAD):
            try:
                commit = self._read(each, state)
            except FileNotFoundError:
                break
            self._ahead.append(commit)
            state, files = commit.state, files + len(commit.files)
            if commit.fault is not None or files >= _AHEAD_FILES:
                break
        if not self._ahead:
            self._check_awaited(version)
            return
        try:
            self._check_goes_on(version - 1, state)
        except TableSourceError:
            self._ahead.clear()
            raise

    def _check_awaited(self, version: int) -> None:
        """Raise `TableSourceError` if `version`, which the log does not have, can never come."""
        newest = delta_log.newest(self._table)
        if newest == delta_log.NOTHING and version > 0:
            raise TableSourceError(
                f"{self._name} is gone: it was dropped or moved. Put it back, then restart the task"
            )
        if newest < version - 1:
            raise self._set_back(newest, version - 1)
        # The version may have come since it was looked for.
        if newest >= version and not delta_log.commit_file(self._table, version).exists():
            raise self._missing(version, newest)

    def _check_goes_on(self, before: int, state: TableState) -> None:
        """Raise `TableSourceError` if the commits read just now do not follow the commit of version
        `before` that the source has read."""
        if before < 0 or self._crc is None:
            return
        self._check_log(before, self._crc)
        if not delta_log.commit_file(self._table, before).exists():
            loaded = load(self._table)
            if loaded is not None:
                self._check_id(TableState.loaded(loaded), state.id)

    def _read(self, version: int, state: TableState) -> _Commit:
        """Read the commit of `version`. If its content cannot be read, `fault` says why.

        Raises:
            FileNotFoundError: there is no such commit.
        """
        commit = _Commit(version, state)
        adds: list[Mapping[str, Any]] = []
        told = f"version {version} of {self._name}"
        try:
            for action, commit.crc in delta_log.actions(self._table, version):
                self._take(commit, action, adds)
            for add in adds:  # after the metaData action, wherever that is in the commit
                self._add(commit, add)
        except TableSourceError as error:
            commit.fault = told_of(told, error)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            commit.fault = TableSourceError(f"{told} cannot be read: {error!r}")
        return commit

    def _take(
        self, commit: _Commit, action: Mapping[str, Any], adds: list[Mapping[str, Any]]
    ) -> None:
        """Apply one action to `commit`. Actions that add rows are appended to `adds`.

        Raises:
            TableSourceError: the table cannot be read from here on. The text follows the name of
                the version.
        """
        if (info := action.get("commitInfo")) is not None:
            commit.operation = str(info.get("operation") or commit.operation)
        elif (told := action.get("protocol")) is not None:
            check_protocol(int(told["minReaderVersion"]), told.get("readerFeatures"))
        elif (made := action.get("metaData")) is not None:
            commit.state = TableState.of_action(made)
        elif (add := action.get("add")) is not None:
            if add.get("dataChange", True):
                commit.added += 1
                adds.append(add)
        elif (remove := action.get("remove")) is not None:
            commit.removed += bool(remove.get("dataChange", True))

    def _add(self, commit: _Commit, add: Mapping[str, Any]) -> None:
        place = _place_of(add["path"])
        if not self._share.has(place):
            return
        state, given = commit.state, add.get("partitionValues") or {}
        constants = {name: _constant(state, name, given.get(name)) for name in state.partition_by}
        opener, size = local(self._table / place), int(add["size"])
        commit.files.append(ParquetData(add["path"], opener, state.columns, constants, size, None))


def _place_of(path: str) -> str:
    """Return the path, below the table's folder, of a file that the log names. Raises
    `TableSourceError` if the file is elsewhere."""
    place = unquote(path)
    if urlsplit(path).scheme or place.startswith("/") or ".." in place.split("/"):
        raise TableSourceError(
            f"names the file {path}, which is outside of the table's folder: it is a clone. Read "
            "the table that it was made of"
        )
    return place


def _constant(state: TableState, name: str, text: str | None) -> Any:
    kind = state.columns.field(name).type
    try:
        return partition_value(text, kind)
    except ValueError as error:
        raise TableSourceError(
            f"has the text {text!r} for the partition column {name}, which is no {kind}: {error}"
        ) from error


_ANEW: Final = (
    "To read the whole table anew, stop the connector and reset its offsets: all rows come again"
)


def _ways_on(last: int) -> str:
    """Return advice to the user if rows up to version `last` cannot be read any more."""
    return (
        "There are two ways on: stop the connector and reset its offsets to read the whole table "
        f"anew, so that rows come again; or alter its offset to version {last + 1} to go on behind "
        "them, so that their rows are lost"
    )


def _offset(version: int, begin: str, id: str, log: int | None) -> dict[str, Any]:
    found = {"version": version, "begin": begin, "id": id}
    return found if log is None else {**found, "log": log}
