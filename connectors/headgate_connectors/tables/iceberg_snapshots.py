"""The snapshots of an Iceberg table as steps of a source: the rows that each snapshot added.

The first step may be the whole table at one snapshot. Later steps follow the table's line of
snapshots from parent to child, and read the data files that each append has added. A snapshot that
removes rows is refused, or skipped. A compaction gives no rows.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.table.snapshots import Operation

from headgate_connectors.tables.iceberg_connection import CatalogConnection
from headgate_connectors.tables.iceberg_history import is_rolled_back
from headgate_connectors.tables.iceberg_state import (
    Files,
    SnapshotState,
    data_files,
    files_of,
    reading,
)
from headgate_connectors.tables.source import (
    AFTER,
    FROM,
    WHOLE,
    Share,
    Step,
    TableSourceError,
    told_of,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A parsed source offset."""

    snapshot: int
    """Id of the snapshot that is being read, or after which the source goes on. 0: before the first
    snapshot."""
    is_after: bool
    """The snapshot was read completely."""
    begin: str
    id: str | None
    """UUID of the table. None: a user has altered the offset."""
    sequence: int | None
    """Sequence number of the snapshot. None: a user has altered the offset, or it has none."""

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> "_Place":
        is_after = "snapshot" not in offset
        snapshot = int(offset[AFTER if is_after else "snapshot"])
        begin = offset.get("begin") or f"{AFTER if is_after else FROM} {snapshot}"
        return cls(snapshot, is_after, str(begin), offset.get("id"), offset.get("sequence"))

    @property
    def is_whole(self) -> bool:
        return not self.is_after and self.begin == f"{WHOLE} {self.snapshot}"

    def members(self, id: str, sequence: int | None) -> dict[str, Any]:
        found = {"begin": self.begin, "id": id}
        return found if sequence is None else {**found, "sequence": sequence}


class IcebergSteps:
    """The steps of one share of an Iceberg table."""

    def __init__(
        self,
        name: str,
        catalog: CatalogConnection,
        share: Share,
        log: Callable[[str], None],
        *,
        skips: bool,
    ) -> None:
        """
        Args:
            name: namespace and table, with dots.
            catalog: connection whose errors are `TableSourceError`. The shares of a task have it in
                common.
            log: called with messages for users.
            skips: skip snapshots that take rows away. Otherwise they are an error.
        """
        self._table = name
        self._catalog = catalog
        self._share = share
        self._log = log
        self._skips = skips
        self._ahead: deque[Any] = deque()
        """Snapshots of `_loaded` that are read next, in order."""
        self._loaded: Any = None
        self._told_missing = False

    @property
    def _name(self) -> str:
        return f"table {self._table}"

    # -- where it begins --

    def begin(self, begin: str) -> Mapping[str, Any] | None:
        table = self._catalog.table(self._table)
        if table is None:
            if not self._told_missing:
                self._log(f"there is no {self._name} in the catalog yet: it is awaited")
                self._told_missing = True
            return None
        kind, _, number = begin.partition(" ")
        snapshot = int(number)
        if snapshot and table.metadata.snapshot_by_id(snapshot) is None:
            raise TableSourceError(
                f"{self._name} has no snapshot {snapshot}, from which on it is to be read: set "
                "starting.snapshot to one that is there, or to latest"
            )
        metadata = table.metadata
        found: dict[str, Any] = {AFTER if kind == AFTER else "snapshot": snapshot}
        if not snapshot and metadata.current_snapshot_id is None:
            # A table without a current snapshot may have had earlier ones.
            found["sequence"] = getattr(metadata, "last_sequence_number", 0)
        return {**found, "begin": begin, "id": str(metadata.table_uuid)}

    # -- steps --

    def next(self, offset: Mapping[str, Any]) -> Step | None:
        place = _Place.of(offset)
        if not self._ahead:
            self._loaded = self._load(place)
            self._ahead += self._line(self._loaded.metadata, place)
        if not self._ahead:
            return None
        snapshot = self._ahead.popleft()
        told = f"snapshot {snapshot.snapshot_id} of {self._name}"
        try:
            with reading(told, _ways_on(snapshot.snapshot_id)):
                return self._step(snapshot, place, told)
        except TableSourceError:
            self._ahead.clear()
            raise

    def _load(self, place: _Place) -> Any:
        table = self._catalog.table(self._table)
        if table is None:
            raise TableSourceError(
                f"{self._name} is gone: it was dropped or renamed. Put it back, then restart the "
                "task"
            )
        found = str(table.metadata.table_uuid)
        if place.id is not None and found != place.id:
            raise TableSourceError(
                f"{self._name} was made anew: its UUID is {found}, and rows of {place.id} were "
                f"read. {_ANEW}"
            )
        return table

    def _line(self, metadata: Any, place: _Place) -> list[Any]:
        """Return the snapshots that are to be read, the oldest first."""
        known = {each.snapshot_id: each for each in metadata.snapshots}
        found: list[Any] = []
        at = metadata.current_snapshot_id
        while at is not None and at != place.snapshot:
            snapshot = known.get(at)
            if snapshot is None:
                raise self._expired(place, found)
            found.append(snapshot)
            at = snapshot.parent_snapshot_id
        found.reverse()
        if at is None and (found or place.snapshot):
            self._check_first(metadata, place, found)
        if not place.is_after:
            if place.snapshot not in known:
                raise self._expired(place, found)
            found.insert(0, known[place.snapshot])
        return found

    def _check_first(self, metadata: Any, place: _Place, line: list[Any]) -> None:
        """Check a line of snapshots that does not reach back to the snapshot that was read last.

        When a snapshot expires, pyiceberg removes the reference to it from its child. Then the
        sequence numbers say whether the line follows the snapshot that was read.

        Raises:
            TableSourceError: snapshots in between have expired, or the table was rolled back.
        """
        if is_rolled_back(metadata, place.snapshot) or not line:
            raise TableSourceError(
                f"{self._name} was rolled back by others: snapshot {place.snapshot}, which was "
                "read, is not among the ancestors of the current one. Set the table to that "
                "snapshot again, then restart the task. If its rows are to be gone: "
                f"{_ways_on(metadata.current_snapshot_id or 0)}"
            )
        first = line[0].sequence_number
        if not first and not place.snapshot:
            follows = self._has_only_its_own(line[0])
        else:
            before = place.sequence if place.snapshot else place.sequence or 0
            follows = place.is_after and before is not None and first == before + 1
        if not follows:
            raise self._expired(place, line)

    def _has_only_its_own(self, snapshot: Any) -> bool:
        """Return whether a snapshot, of a table without sequence numbers, has only data files that
        it added itself."""
        number = snapshot.snapshot_id
        with reading(f"snapshot {number} of {self._name}", _ways_on(number)):
            found = files_of(snapshot, self._loaded.io, whole=True)
        return len(found.added) == len(found.live)

    def _expired(self, place: _Place, line: list[Any]) -> TableSourceError:
        """Return the error that snapshots before those of `line` have expired."""
        oldest = min(line, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        what = "after" if place.is_after else "from"
        return TableSourceError(
            f"snapshots of {self._name} {what} {place.snapshot} on have expired before the source "
            f"had read them: the oldest that is there is {oldest.snapshot_id}. "
            f"{_ways_on(oldest.snapshot_id, behind=False)}"
        )

    def _step(self, snapshot: Any, place: _Place, told: str) -> Step:
        table = self._loaded
        whole = place.is_whole
        found = files_of(snapshot, table.io, whole=whole)
        try:
            state = SnapshotState.of(table.metadata, snapshot)
            entries = self._whole(found) if whole else self._added(snapshot, found, told)
            files = data_files(entries, state, table, self._share)
        except TableSourceError as error:
            raise told_of(told, error) from error
        number = snapshot.snapshot_id
        members = place.members(str(table.metadata.table_uuid), snapshot.sequence_number)
        return Step(
            f"{self._name} as of snapshot {number}" if whole else told,
            {"snapshot": number, **members},
            files,
            state.schema,
            {AFTER: number, **members},
            _ways_on(number),
        )

    def _whole(self, found: Files) -> list[Any]:
        if found.deleting:
            raise TableSourceError(
                f"has {found.deleting} files that delete rows of others (merge on read), which the "
                "source does not read: compact the table, then begin with it"
            )
        return found.live

    def _added(self, snapshot: Any, found: Files, told: str) -> list[Any]:
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation is Operation.REPLACE:
            return []
        if not found.removed and not found.deletes and operation is not Operation.DELETE:
            return found.added
        name = "a commit without a name" if operation is None else operation.value
        text = (
            f"({name}) takes rows away or rewrites them: it removes {found.removed} files, adds "
            f"{len(found.added)}, and adds {found.deletes} that delete rows"
        )
        if not self._skips:
            raise TableSourceError(
                f"{text}. A source only gives rows that are new. Set on.change = skip to pass over "
                f"such snapshots, and what they add. {_ANEW}"
            )
        self._log(f"{told} {text}; it is passed over, with what it adds, as on.change is skip")
        return []


_ANEW: Final = (
    "To read the whole table anew, stop the connector and reset its offsets: all rows come again"
)


def _ways_on(snapshot: int, *, behind: bool = True) -> str:
    """Return advice to the user if rows cannot be read any more.

    Args:
        snapshot: the snapshot at which, or after which if `behind`, the table can be read on.
    """
    offset = f'{{"{AFTER if behind else "snapshot"}": {snapshot}}}'
    return (
        "There are two ways on: stop the connector and reset its offsets to read the whole table "
        f"anew, so that rows come again; or alter its offset to {offset} to go on behind them, so "
        "that their rows are lost"
    )
