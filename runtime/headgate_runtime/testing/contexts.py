"""Contexts that a test builds and gives to a task or a connector, to call its methods directly.

They do what the worker's contexts do, keep what they were told, and wait for nothing.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headgate.connector.api import Partition, Reported, SinkRecord, SourceRecord
from headgate.topics.offsets import decode_value, encode_key, encode_value, partition_identity

Offsets = Sequence[tuple[Partition, Partition]]
"""Pairs of source partition and source offset."""


class FixedOffsets:
    """An `OffsetReader` of offsets that a test names.

    They are written and read as in the offsets topic, so values that JSON cannot hold are refused.
    """

    def __init__(self, offsets: Offsets = ()) -> None:
        self._found: dict[str, tuple[Partition, Mapping[str, Any]]] = {}
        for partition, offset in offsets:
            self.set(partition, offset)

    def set(self, partition: Partition, offset: Partition) -> None:
        """Store an offset.

        Raises:
            OffsetFormatError: the partition or the offset cannot be stored.
        """
        encode_key("test", partition)
        stored = decode_value(encode_value(offset))
        assert stored is not None
        self._found[partition_identity(partition)] = (dict(partition), stored)

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        found = self._found.get(partition_identity(partition))
        return None if found is None else found[1]

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        return [self.offset(partition) for partition in partitions]

    def committed(self) -> Sequence[tuple[Partition, Mapping[str, Any]]]:
        return list(self._found.values())


class FakeTransaction:
    """A `TransactionContext` that keeps the requests: ``commit`` or ``abort``, and the record."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, SourceRecord | None]] = []

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append(("commit", record))

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append(("abort", record))


class FakeSourceContext:
    """A `SourceTaskContext` that keeps what the task said."""

    def __init__(
        self,
        offsets: Offsets = (),
        *,
        until_idle: bool = False,
        transaction: FakeTransaction | None = None,
    ) -> None:
        """
        Args:
            offsets: committed source offsets, as pairs of source partition and offset.
        """
        self.offsets = FixedOffsets(offsets)
        self.transaction = transaction
        self.until_idle = until_idle
        self.takes_batches = False
        self.keeps_batches = False
        self.stopping = False
        self.waited: list[float] = []
        """Seconds of each `wait`."""
        self.awaited = 0
        """Number of calls of `await_input`."""
        self.quarantined: tuple[str, ...] = ()
        self.worker_settings: Mapping[str, str] = {}
        self.cluster = "test"
        self.logged: list[str] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return self.stopping

    def await_input(self) -> None:
        self.awaited += 1

    def quarantine(self, inputs: Sequence[str]) -> None:
        self.quarantined = tuple(inputs)

    def log(self, message: str) -> None:
        self.logged.append(message)


class _Written:
    """The result of a report to a `FakeSinkContext`: the record is written."""

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> None:
        pass


class FakeSinkContext:
    """A `SinkTaskContext`, with an errant record reporter that keeps what it is given."""

    def __init__(
        self,
        assignment: Collection[tuple[str, int]] = (("topic", 0),),
        committed: Mapping[tuple[str, int], int] | None = None,
        *,
        reports: bool = True,
    ) -> None:
        """
        Args:
            assignment: topic partitions of the task.
            committed: consumer offsets of the group.
            reports: whether there is an errant record reporter.
        """
        self._assignment = frozenset(assignment)
        self._reports = reports
        self._committed = dict(committed or {})
        self.stopping = False
        self.seeks: dict[tuple[str, int], int] = {}
        """Offsets asked for with `offset`, by topic partition."""
        self.paused: set[tuple[str, int]] = set()
        self.timeout_ms: int | None = None
        self.commits_requested = 0
        self.log_offsets: dict[tuple[str, int], Collection[int]] = {}
        """Offsets of the records that the log has. A partition that is not named has all
        offsets."""
        self.log_ends: dict[tuple[str, int], int] = {}
        """End offsets of the log. A partition that is not named has no end."""
        self.log_times: dict[tuple[str, int], Mapping[int, int]] = {}
        """Timestamps of records by offset, as `record_time` returns them."""
        self.worker_settings: Mapping[str, str] = {}
        self.logged: list[str] = []
        self.reported: list[tuple[SinkRecord, BaseException]] = []
        """Records that the task has reported, with their errors."""

    def errant_record_reporter(self) -> "FakeSinkContext | None":
        return self if self._reports else None

    def report(self, record: SinkRecord, error: BaseException) -> Reported:
        self.reported.append((record, error))
        return _Written()

    def offset(self, topic: str, partition: int, offset: int) -> None:
        self.seeks[topic, partition] = offset

    def assignment(self) -> Collection[tuple[str, int]]:
        return self._assignment

    def pause(self, *partitions: tuple[str, int]) -> None:
        self._check(partitions)
        self.paused.update(partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._check(partitions)
        self.paused.difference_update(partitions)

    def _check(self, partitions: Sequence[tuple[str, int]]) -> None:
        foreign = sorted(set(partitions) - self._assignment)
        if foreign:
            topic, number = foreign[0]
            raise ValueError(f"{topic}-{number} is not assigned to this task")

    def timeout(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            raise ValueError(f"timeout({timeout_ms}): expected milliseconds, 0 or more")
        self.timeout_ms = timeout_ms

    def committed(self) -> Mapping[tuple[str, int], int]:
        return dict(self._committed)

    def first_record(self, topic: str, partition: int, start: int, end: int) -> int | None:
        known = self.log_offsets.get((topic, partition), range(start, end))
        return min((offset for offset in known if start <= offset < end), default=None)

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        end = self.log_ends.get((topic, partition))
        if end is not None and offset >= end:
            raise LookupError(f"it ends at offset {end}")
        return self.log_times.get((topic, partition), {}).get(offset)

    def request_commit(self) -> None:
        self.commits_requested += 1

    def log(self, message: str) -> None:
        self.logged.append(message)


class FakeConnectorContext:
    """A `ConnectorContext` that keeps what the connector said."""

    def __init__(self, offsets: Offsets = ()) -> None:
        self.offset_reader = FixedOffsets(offsets)
        self.reconfigurations = 0
        """Number of calls of `request_task_reconfiguration`."""
        self.reconfigured = threading.Event()
        """Set at the first of these calls, which may come from any thread."""
        self.errors: list[BaseException] = []
        """Errors with which `raise_error` was called."""

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1
        self.reconfigured.set()

    def raise_error(self, error: BaseException) -> None:
        self.errors.append(error)
