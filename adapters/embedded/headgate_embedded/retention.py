"""Retention on the embedded log: passes that delete old batches, and errors of readers whose
records are gone.

Marks tell the age of batches. A mark says which offset a partition had reached at a time of the
wall clock. So appending costs nothing more, and files of earlier versions can have marks too. A
partition starts at the first offset of its first batch, or at its end if it is empty.

Freed space is used again by later appends. `give_back` shrinks the file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import apsw

from headgate.log.retention import (
    UNLIMITED,
    AgeMark,
    LogLimits,
    SinkReads,
    StoredBatch,
    TopicLimits,
    allowed,
    deletable,
    deletion_step,
    expired,
    is_mark_due,
    sink_reads,
    whole_batches,
)
from headgate.ports import RefusedError, TopicPartition
from headgate.topics.config_events import Config
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate_embedded.database import Database
from headgate_embedded.logs import EmbeddedConfigLog
from headgate_embedded.machine import wall_ms
from headgate_embedded.record_tables import read_committed

STEP_BYTES: Final = 16 * 1024 * 1024
"""Bytes after which a deletion commits, so that others get the write lock."""
SHRINK_BYTES_MIN: Final = 64 * 1024 * 1024
_CONFIG_BATCH: Final = 5_000

_MARKS: Final = """create table if not exists retention_marks(
    topic integer not null, part integer not null, next integer not null, at_ms integer not null,
    primary key (topic, part, next)
) without rowid"""
"""The table of marks. The first pass that needs it creates it, since files of earlier versions do
not have it."""


class RecordsGoneError(RefusedError):
    """Retention has deleted records before this reader has read them."""


def first_offset(connection: apsw.Connection, topic: int, partition: int) -> int:
    """Return the offset of the first record that exists, or the end of an empty partition."""
    row: Any = connection.execute(
        "select coalesce((select min(base) from batches where topic = heads.topic and "
        "part = heads.part), next) from heads where topic = ? and part = ?",
        (topic, partition),
    ).fetchone()
    return int(row[0]) if row is not None else 0


def check_there(
    connection: apsw.Connection,
    number: int,
    place: TopicPartition,
    start: int,
    found: Sequence[tuple[int, bytes]],
    whose: str,
) -> None:
    """Check that a read from offset `start` on has missed no records. To be called in the same
    snapshot as the read.

    Args:
        found: first offset and data of each batch that was read.
        whose: the reader, for the message.

    Raises:
        RecordsGoneError: retention has deleted records. The message says how many.
    """
    if found and found[0][0] <= start:
        return
    first = first_offset(connection, number, place[1])
    if start < first:
        name = f"{place[0]}-{place[1]}"
        raise RecordsGoneError(
            f"{first - start} records of {name} are gone: retention deleted offsets {start} to "
            f"{first - 1} before {whose} had read them. To go on without them stop the connector "
            f"and set its offset of {name} to {first}"
        )


@dataclass(frozen=True, slots=True)
class Removed:
    """The offsets and bytes that a pass deleted from a partition."""

    topic: str
    partition: int
    first: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Records that a pass did not delete, because a sink has not read them yet."""

    topic: str
    partition: int
    connector: str
    offset: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Passed:
    removed: tuple[Removed, ...] = ()
    held_back: tuple[HeldBack, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    number: int
    topic: str
    partition: int


class Retention:
    """Retention passes over all topics. Only one pass may run at a time. Other processes may
    append, read and commit meanwhile."""

    def __init__(
        self,
        database: Database,
        limits: LogLimits,
        is_sink: Callable[[Config], bool],
        named: Mapping[str, Config],
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """
        Args:
            is_sink: returns whether a connector's config is a sink's.
            named: configs of connectors that will be created, beside those in the config log.
        """
        self._database = database
        self._limits = limits
        self._is_sink = is_sink
        self._named = named
        self._now_ms = now_ms
        self._config_log = EmbeddedConfigLog(database)
        self._position = 0
        self._state = ConfigState()

    def run(self, stopping: Callable[[], bool] = lambda: False) -> Passed:
        """Run one pass. It ends early once `stopping` returns True."""
        parts = self._parts()
        if any(self._limits.of(one.topic).retention_ms != UNLIMITED for one in parts):
            self._mark(parts)
        removed: list[Removed] = []
        held: list[HeldBack] = []
        for part in parts:
            if stopping():
                break
            found = self._delete(part, stopping, held)
            if found is not None:
                removed.append(found)
        return Passed(tuple(removed), tuple(held))

    def close(self) -> None:
        self._config_log.close()
        self._database.close()

    def _parts(self) -> list[_Part]:
        """Return the partitions of all topics that have a limit."""
        with self._database.read() as connection:
            rows: list[Any] = connection.execute(
                "select topics.id, name, part from heads join topics on topics.id = heads.topic "
                "order by name, part"
            ).fetchall()
        return [_Part(*row) for row in rows if not self._limits.of(row[1]).keeps_all]

    def _mark(self, parts: Iterable[_Part]) -> None:
        with self._database.write(synced=False) as connection:
            connection.execute(_MARKS)
            # The clock is read under the lock. If it were read before, records appended in between
            # would get a mark that is older than they are.
            now_ms = self._now_ms()
            for part in parts:
                period = self._limits.of(part.topic).retention_ms
                if period != UNLIMITED and is_mark_due(_marks(connection, part), now_ms, period):
                    connection.execute(
                        "insert or ignore into retention_marks(topic, part, next, at_ms) "
                        "select topic, part, next, ? from heads where topic = ? and part = ?",
                        (now_ms, part.number, part.partition),
                    )

    def _delete(
        self, part: _Part, stopping: Callable[[], bool], held: list[HeldBack]
    ) -> Removed | None:
        limits = self._limits.of(part.topic)
        batches, wanted = self._wanted(part, limits)
        if not wanted:
            return None
        first, end, size = batches[0].base, batches[0].base, 0
        while not stopping():
            reads, config_end = self._reads(limits)
            with self._database.write() as connection:
                if self._config_log.end_in(connection) != config_end:
                    continue  # the config log has changed, and may name a new sink
                committed = partial(_committed, connection, part)
                cut, by = allowed(reads, part.topic, committed, wanted)
                step = deletion_step(whole_batches(batches, cut), STEP_BYTES)
                if step:
                    _remove(connection, part, step[-1].end)
            if by is not None and not step:
                held.append(HeldBack(part.topic, part.partition, by.connector, cut, wanted))
            if not step:
                break
            end, size = step[-1].end, size + sum(one.size for one in step)
            batches = batches[len(step) :]
        return Removed(part.topic, part.partition, first, end, size) if end > first else None

    def _wanted(self, part: _Part, limits: TopicLimits) -> tuple[list[StoredBatch], int]:
        """Return a partition's batches, and the offset below which they exceed the limits."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "select base, count, length(data) from batches where topic = ? and part = ? "
                "order by base",
                (part.number, part.partition),
            )
            batches = [StoredBatch(*row) for row in rows]
            below = 0
            if limits.retention_ms != UNLIMITED:
                below = expired(_marks(connection, part), self._now_ms(), limits.retention_ms)
        return batches, deletable(batches, limits, below)

    def _reads(self, limits: TopicLimits) -> tuple[list[SinkReads], int]:
        """Return what the sinks read whose offsets hold deletion back, and the end of the config
        log from which that is known."""
        while True:
            records, self._position = self._config_log.read(self._position, _CONFIG_BATCH)
            if not records:
                break
            events = [decode(record.offset, record.key, record.value) for record in records]
            self._state = fold(self._state, events)
        configs = [*self._named.items()]
        for name in self._state.connector_names():
            entry = self._state.entry(name)
            if entry is not None and entry.config is not None:
                configs.append((name, entry.config))
        if limits.past_sinks:
            return [], self._position
        return [sink_reads(*one) for one in configs if self._is_sink(one[1])], self._position


def _committed(connection: apsw.Connection, part: _Part, group: str) -> int:
    return read_committed(connection, group).get((part.topic, part.partition), 0)


def _marks(connection: apsw.Connection, part: _Part) -> list[AgeMark]:
    rows: Any = connection.execute(
        "select next, at_ms from retention_marks where topic = ? and part = ?",
        (part.number, part.partition),
    )
    return [AgeMark(*row) for row in rows]


def _remove(connection: apsw.Connection, part: _Part, end: int) -> None:
    place = (part.number, part.partition, end)
    connection.execute(
        "delete from batches where topic = ? and part = ? and base < ? and base + count <= ?",
        (*place, end),
    )
    marked = connection.execute(
        "select 1 from sqlite_schema where type = 'table' and name = 'retention_marks'"
    )
    if marked.fetchall():
        connection.execute(
            "delete from retention_marks where topic = ? and part = ? and next <= ?", place
        )


def give_back(database: Database) -> int:
    """Shrink the file if at least half of it is free. Return how many bytes were freed.

    It needs as much free disk space as the remaining data takes, and no other process may use the
    file. If this process is killed meanwhile the file stays as it was.

    Raises:
        TransportError: there is too little space, or another process uses the file.
    """
    with database.read() as connection:
        free, pages, page = (
            int(connection.pragma(name)) for name in ("freelist_count", "page_count", "page_size")
        )
    if free * page < SHRINK_BYTES_MIN or 2 * free < pages:
        return 0
    before = database.path.stat().st_size
    database.vacuum()
    return max(0, before - database.path.stat().st_size)
