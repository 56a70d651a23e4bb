"""Producers on the embedded log, and their fencing.

A producer buffers and encodes the records of a transaction. `commit` writes them in one SQLite
transaction and checks the epoch inside. A process that dies leaves nothing behind.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import apsw

from headgate.log.retention import LogLimits, record_size, too_large
from headgate.log.value_columns import records_of
from headgate.ports import (
    Ack,
    FencedError,
    LogBatch,
    MembershipEndedError,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    TransactionOverError,
    TransportError,
    ValueColumn,
)
from headgate.task.partitioner import Partitioner
from headgate_embedded import arrow_batches, batches
from headgate_embedded.database import Database
from headgate_embedded.logs import append_latest
from headgate_embedded.machine import wall_ms
from headgate_embedded.schema import BATCHES_VERSION, SCHEMA_VERSION

RECORDS_PER_BATCH: Final = 2_000
BYTES_PER_BATCH: Final = 16 * 1024 * 1024
"""Most bytes of a batch, unless a single record has more. SQLite takes no BLOB above 1 GB."""
OFFSETS: Final = "offsets"
"""Name of the offsets topic among the compacted logs."""

Membership = tuple[str, str, int]
"""(group, member id, generation)."""
NO_LIMITS: Final = LogLimits()
IsMember = Callable[[apsw.Connection, str, str], bool]
"""Returns whether a group (second argument) has a live member with an id (third). Called inside a
transaction."""


class EmbeddedProducer:
    """A task's producer. Without a transactional id it has no epoch and cannot be fenced."""

    def __init__(
        self,
        database: Database,
        partitions: Callable[[str], int],
        is_member: IsMember,
        client_id: str,
        transactional_id: str | None,
        membership: Membership | None,
        compression: str = "none",
        limits: LogLimits = NO_LIMITS,
    ) -> None:
        self._database = database
        self._limits = limits
        self._partitions = partitions
        self._is_member = is_member
        self._client_id = client_id
        self._transactional_id = transactional_id
        self._membership = membership
        self._compression = batches.COMPRESSIONS[compression]
        self._partitioner = Partitioner()
        self._epoch: int | None = None
        self._open: dict[TopicPartition, list[ProducerRecord]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        """Size, in bytes, of the records in `_open`."""
        self._encoded: list[tuple[TopicPartition, int, bytes]] = []
        self._sent = 0
        self._acked = 0
        self._refused: dict[int, str] = {}
        """Why records of a producer without transactions were refused, by the records' numbers."""
        self._numbers: dict[TopicPartition, list[int]] | None = None
        """Numbers of the buffered records. None: `keep_places` was not called."""
        self._places: list[tuple[int, RecordMetadata]] = []

    def connect(self) -> None:
        """Do nothing: there is no connection to wait for."""

    def init(self) -> None:
        if self._transactional_id is None:
            raise ValueError(f"producer {self._client_id} has no transactional id to initialise")
        self.abort()
        with self._database.write() as connection:
            if self._membership is not None:
                group, member_id, generation = self._membership
                # Without this check, a zombie that wakes up would fence its rightful successor.
                if not self._is_member(connection, group, member_id):
                    raise MembershipEndedError(
                        f"{member_id} is no longer a member of {group} (the producer was made in "
                        f"generation {generation}): {self._transactional_id} was left alone"
                    )
            self._epoch = next_epoch(connection, self._transactional_id, self._client_id)

    def send(self, records: Sequence[ProducerRecord]) -> None:
        placed = self._partitioner.places(records, self._partitions)
        sizes = [
            record_size(one) if one.headers else len(one.key or b"") + len(one.value or b"")
            for one in records
        ]
        refused = self._too_large(records, sizes)
        first, self._sent = self._sent, self._sent + len(records)
        self._refused |= {first + at: text for at, text in refused.items()}
        if self._numbers is not None:
            for at, (place, _) in enumerate(placed):
                if at not in refused:
                    self._numbers.setdefault(place, []).append(first + at)
        if refused:
            sizes = [size for at, size in enumerate(sizes) if at not in refused]
            placed = [one for at, one in enumerate(placed) if at not in refused]
        for (place, record), size in zip(placed, sizes, strict=True):
            waiting = self._open.get(place)
            if waiting is None:
                waiting = self._open[place] = []
            total = self._bytes.get(place, 0) + size
            if waiting and total > BYTES_PER_BATCH:
                self._encode(place)
                waiting, total = self._open.setdefault(place, []), size
            waiting.append(record)
            self._bytes[place] = total
            if len(waiting) >= RECORDS_PER_BATCH:
                self._encode(place)

    def _too_large(self, records: Sequence[ProducerRecord], sizes: Sequence[int]) -> dict[int, str]:
        """Return why records are refused as too large, by their indexes in `records`.

        Raises:
            TransactionOverError: one is refused, and the producer is transactional. No record was
                buffered.
        """
        limits = self._limits
        refused: dict[int, str] = {}
        if max(sizes, default=0) <= limits.message_bytes_least:
            return refused
        for at, (record, size) in enumerate(zip(records, sizes, strict=True)):
            if text := too_large(record.topic, size, limits):
                if self._transactional_id is not None:
                    error = TransactionOverError(text)
                    error.place = at
                    raise error
                refused[at] = text
        return refused

    def send_values(self, column: ValueColumn) -> None:
        self.send(records_of(column))

    def send_batch(self, batch: LogBatch) -> None:
        place = self._partitioner.place(batch, self._partitions)
        if len(batch.data) > self._limits.of(batch.topic).message_bytes:
            self.send(_records_of(batch, place))  # so that each row's size is checked by itself
            return
        if self._numbers is not None:
            numbers = range(self._sent, self._sent + batch.count)
            self._numbers.setdefault(place, []).extend(numbers)
        if place in self._open:
            self._encode(place)  # records sent before this batch keep their place before it
        data = batches.encode_batch(batch, wall_ms(), self._compression)
        self._encoded.append((place, batch.count, data))
        self._sent += batch.count

    def acks(self) -> Sequence[Ack]:
        if self._transactional_id is not None:
            raise ValueError(
                f"{self._transactional_id} is transactional: its records are committed"
            )
        if self._acked == self._sent:
            return []
        self._write(())
        acks: list[Ack] = []
        refused, self._refused = self._refused, {}
        for number, text in sorted(refused.items()):
            if self._acked < number:
                acks.append(Ack(self._acked, number - 1))
            acks.append(Ack(number, number, text))
            self._acked = number + 1
        if self._acked < self._sent:
            acks.append(Ack(self._acked, self._sent - 1))
        self._acked = self._sent
        return acks

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self._transactional_id is None:
            raise ValueError(f"producer {self._client_id} has no transactional id to commit under")
        self._write(offsets)
        self._acked = self._sent

    def begin_commit(
        self, offsets: Sequence[tuple[bytes, bytes | None]]
    ) -> Callable[[], None] | None:
        self.commit(offsets)
        return None

    def abort(self) -> None:
        self._open.clear()
        self._bytes.clear()
        self._encoded.clear()
        self._refused.clear()
        self._acked = self._sent
        if self._numbers is not None:
            self._numbers.clear()

    def keep_places(self) -> None:
        self._numbers = {}

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        found, self._places = self._places, []
        return found

    def close(self) -> None:
        self.abort()

    def _encode(self, place: TopicPartition) -> None:
        records = self._open.pop(place)
        self._bytes.pop(place, None)
        data = batches.encode(records, wall_ms(), self._compression)
        self._encoded.append((place, len(records), data))

    def _write(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write all buffered records in one transaction. They stay buffered if it fails, unless the
        producer was fenced."""
        for place in list(self._open):
            self._encode(place)
        try:
            with self._database.write() as connection:
                if self._transactional_id is not None:
                    self._check_epoch(connection, self._transactional_id)
                bases = append_batches(connection, self._encoded)
                marked = self._mark_file(connection)
                append_latest(connection, OFFSETS, offsets)
        except FencedError:
            self.abort()
            raise
        if marked:
            self._database.fold()
        if self._numbers is not None:
            self._note_places(self._numbers, bases)
        self._encoded.clear()

    def _mark_file(self, connection: apsw.Connection) -> bool:
        """Set the file's version to `BATCHES_VERSION` if these are its first Arrow rows. Return
        whether it was set now."""
        if not any(batches.is_batch(data) for _, _, data in self._encoded):
            return False
        if connection.pragma("user_version") != SCHEMA_VERSION:
            return False
        connection.pragma("user_version", BATCHES_VERSION)
        return True

    def _note_places(self, numbers: dict[TopicPartition, list[int]], bases: Sequence[int]) -> None:
        for (place, count, _), base in zip(self._encoded, bases, strict=True):
            for offset, number in enumerate(numbers[place][:count], base):
                self._places.append((number, RecordMetadata(*place, offset)))
            del numbers[place][:count]

    def _check_epoch(self, connection: apsw.Connection, transactional_id: str) -> None:
        row = connection.execute(
            "select epoch, owner from producers where tid = ?", (transactional_id,)
        ).fetchone()
        if self._epoch is None:
            raise FencedError(f"{transactional_id} was not initialised by {self._client_id}")
        if row is None or row[0] != self._epoch:
            raise FencedError(
                f"{transactional_id} has epoch {row[0] if row else None} ({row[1] if row else ''}),"
                f" this producer has {self._epoch} ({self._client_id}): it was shut out"
            )


class EmbeddedFencer:
    """Fences the producers of several transactional ids in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def fence(self, transactional_ids: Sequence[str]) -> None:
        with self._database.write() as connection:
            for transactional_id in transactional_ids:
                next_epoch(connection, transactional_id, "fenced")


def next_epoch(connection: apsw.Connection, transactional_id: str, owner: str) -> int:
    """Raise the epoch of a transactional id and return it. After the caller's commit only a
    producer with that epoch can commit under the id."""
    row: Any = connection.execute(
        "insert into producers(tid, epoch, owner) values(?, 0, ?) "
        "on conflict(tid) do update set epoch = epoch + 1, owner = excluded.owner returning epoch",
        (transactional_id, owner),
    ).fetchone()
    return int(row[0])


def append_batches(
    connection: apsw.Connection, encoded: Sequence[tuple[TopicPartition, int, bytes]]
) -> list[int]:
    """Append encoded batches, inside the caller's transaction. Return each batch's first offset."""
    bases: list[int] = []
    for (topic, partition), count, data in encoded:
        row = connection.execute(
            "update heads set next = next + ? where part = ? "
            "and topic = (select id from topics where name = ?) returning topic, next - ?",
            (count, partition, topic, count),
        ).fetchone()
        if row is None:
            raise TransportError(f"{topic}-{partition} is not in the log any more")
        connection.execute(
            "insert into batches(topic, part, base, count, data) values(?, ?, ?, ?, ?)",
            (row[0], partition, row[1], count, data),
        )
        bases.append(int(row[1]))
    return bases


def _records_of(batch: LogBatch, place: TopicPartition) -> list[ProducerRecord]:
    topic, partition = place
    time_ms = wall_ms() if batch.timestamp_ms is None else batch.timestamp_ms
    placed = replace(batch, partition=partition, offset=0, timestamp_ms=time_ms)
    return [
        ProducerRecord(topic, partition, one.key, one.value, one.headers, one.timestamp_ms)
        for one in arrow_batches.records(placed, 0, batch.count)
    ]
