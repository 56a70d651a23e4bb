"""Interfaces that authors of connectors implement: Kafka Connect's life cycles, Python's shapes.

A connector is a class that divides its work (`task_configs`) and names the task class that does it.
A source task yields records from `poll`; a sink task takes them in `put`. Connector code never runs
on the thread that decides: the worker calls connectors with a deadline, and tasks run in their
runner.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeAlias

from headgate.connector.batches import SinkBatch, SourceBatch
from headgate.connector.config import ConfigDef
from headgate.connector.data_error import DataError as DataError
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.ports import ConsumerRecord, RecordLog
from headgate.ports import RecordMetadata as RecordMetadata

Partition: TypeAlias = Mapping[str, Any]
"""Source partition or source offset: string keys; values null, str, bool, int, float or bytes."""
Headers: TypeAlias = tuple[tuple[str, Any], ...]
Value: TypeAlias = Any
"""Any value that the converter accepts: str, bytes, numbers, bool, None, and dicts and lists of
them. With a schema (`headgate.connector.schema`) also Decimal, date, time and datetime."""


class RetriableError(Exception):
    """Raised by a task to ask for the same call again later. Source: RetriableException."""


@dataclass(slots=True)
class SourceRecord:
    """One record, and the source offset that is reached once it is committed."""

    source_partition: Partition
    source_offset: Partition
    topic: str
    value: Value
    key: Value = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    """Schema of the value, which is checked against it when it is converted; None: no schema."""
    header_schemas: tuple[Schema | None, ...] = ()
    """One schema for each header, in order; empty if no header has one."""


@dataclass(slots=True)
class SkippedRecord:
    """Yielded by `poll` in place of a record that cannot be read. With `errors.tolerance` = none
    the task fails with `reason`. With `all` the record is counted and logged, and its source offset
    is committed."""

    source_partition: Partition
    source_offset: Partition
    reason: str
    """Error text; it names the input and the position in it."""
    count: int = 1
    """Number of records that are lost with it, if known."""
    raw: bytes | None = None
    """Unreadable bytes, for a dead letter queue; None if not available."""


@dataclass(slots=True)
class OffsetUpdate:
    """Yielded by `poll` to commit a source offset without a record, in the order of the batch.
    Source: KIP-910."""

    source_partition: Partition
    source_offset: Partition


SourceItem: TypeAlias = SourceRecord | SkippedRecord | OffsetUpdate
"""Items that `poll` may yield."""


@dataclass(slots=True)
class SinkRecord:
    topic: str
    partition: int
    offset: int
    key: Value
    value: Value
    headers: Headers
    timestamp_ms: int
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    """Schema of the value as its converter read it; None if the converter gives none."""
    header_schemas: tuple[Schema | None, ...] = ()
    """One schema for each header, in order; empty if no header has one."""
    original: ConsumerRecord | None = field(default=None, repr=False, compare=False)
    """The record as the log had it, for a dead letter. None if the task has no errant record
    reporter, since it is not needed then."""


class Reported(Protocol):
    """Result of reporting a record."""

    def done(self) -> bool:
        """Return whether the log has the record's dead letter."""
        ...

    def result(self, timeout: float | None = None) -> None:
        """Write the dead letter and all reported before; wait until the log has them.

        Raises:
            TransportError: The log could not be reached; the reported records are kept.
        """
        ...


class ErrantRecordReporter(Protocol):
    """Takes records that a sink task could not process, from any thread. Source: KIP-610."""

    def report(self, record: SinkRecord, error: BaseException) -> Reported:
        """Log the record and send it to the dead letter queue, as the config asks; the task then
        goes on without it.

        Returns:
            Done when the log has the dead letter. There is no need to wait for it: offsets are
            committed only after all dead letters before them are written. `result()` writes it now.

        Raises:
            DataError: `errors.tolerance` is none, so the task must fail.
        """
        ...


class OffsetReader(Protocol):
    """Reads source offsets, as committed when the task's producer was initialised or later."""

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        """Return the committed offset of a source partition; None if it has none yet."""
        ...

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]: ...

    def committed(self) -> Sequence[tuple[Partition, Mapping[str, Any]]]:
        """Return all source partitions of the connector that have a source offset, including those
        of its other tasks."""
        ...


class TransactionContext(Protocol):
    """Connector-defined transactions (`transaction.boundary` = connector). Source: KIP-618.

    A transaction ends with the batch that `poll` is returning, or after `record` in that batch.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None: ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None: ...


class SourceTaskContext(Protocol):
    @property
    def offsets(self) -> OffsetReader: ...

    @property
    def transaction(self) -> TransactionContext | None:
        """Ends transactions; None unless exactly-once is on and `transaction.boundary` is
        connector."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the worker has asked the task to stop; a long `poll` should return."""
        ...

    @property
    def until_idle(self) -> bool:
        """Whether the worker ends once everything is read (``headgate up --until-idle``), so that
        no more input than there is now is expected."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep, but wake at once for stop or pause. Return True if the task should return from
        `poll`."""
        ...

    def await_input(self) -> None:
        """Report, inside `poll`, an input that cannot be read yet (a file being written). The task
        is then not idle although this batch is empty."""
        ...

    def quarantine(self, inputs: Sequence[str]) -> None:
        """Report, inside `poll`, all inputs that the task has set aside and does not read, each
        with its reason. They are shown in the task's status until the next call, and at the end of
        ``headgate up``, which then fails."""
        ...

    @property
    def takes_batches(self) -> bool:
        """Whether a `SourceBatch` goes to the log without being split into records. If not, a
        transform or a converter needs records, and the task should yield records."""
        ...

    @property
    def keeps_batches(self) -> bool:
        """Whether the log keeps a `SourceBatch` whole. If not, its rows become records there, and a
        batch should have no more rows than the task would yield as records."""
        ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    @property
    def cluster(self) -> str:
        """Name of the cluster, the same for all its tasks. It differs from that of any other
        cluster with workers on this machine."""
        ...

    def log(self, message: str) -> None:
        """Tell the user something: a warning in the worker's log. Not for each record."""
        ...


class SourceTask(ABC):
    """One task of a source connector. One thread calls its methods in this order: start, poll*,
    stop."""

    IN_WORKER_PROCESS: ClassVar[bool] = False
    """Whether the runner `spark` runs the task on the worker's machine, not on an executor: the
    Spark jobs that it submits would wait for slots that resident tasks hold."""

    context: SourceTaskContext

    def start(self, config: Mapping[str, str]) -> None:
        """Open the input and seek to the committed source offsets (`context.offsets`)."""

    @abstractmethod
    def poll(self) -> "Iterable[SourceItem | SourceBatch] | None":
        """Return the next records; None or nothing if there are none now. May wait a little
        (`context.wait`). Rows of Arrow may come as a `SourceBatch` (`context.takes_batches`).

        The batch is iterated once. Keep it to some thousands of records: with
        `transaction.boundary` = poll each batch is one transaction. While that is committed the
        next poll may already run, unless the task overrides `commit` or `commit_record`; the worker
        learns the outcome after both.
        """

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Note that `record`, as `poll` returned it, is in the log.

        Exactly-once: called for each record of a transaction after its commit and before `commit`;
        else when records are acknowledged. `metadata` is None if the record never comes into the
        log: a transform dropped it, `errors.tolerance` let it go, or the task aborted its
        transaction. Exceptions are logged. Costs nothing unless overridden.
        """

    def commit(self) -> None:
        """Note that everything polled before is committed with its source offsets. Exceptions are
        logged."""

    def stop(self) -> None: ...


class SinkTaskContext(Protocol):
    def offset(self, topic: str, partition: int, offset: int) -> None:
        """Continue with the records from `offset` on."""
        ...

    def assignment(self) -> Collection[tuple[str, int]]: ...

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give no records of these partitions until `resume`, such as when a system is full.

        Raises:
            ValueError: A partition is not assigned to the task.

        A pause and resume of the connector, or a redelivery, does not end the pause; losing the
        partition does.
        """
        ...

    def resume(self, *partitions: tuple[str, int]) -> None:
        """End a pause. Raises ValueError: a partition is not assigned to the task."""
        ...

    def timeout(self, timeout_ms: int) -> None:
        """Have `put` called after `timeout_ms` at the latest, with no records if there are none.

        In a `put` that raises `RetriableError`, it is the time until the next try. It holds for the
        next call only. Raises ValueError below 0.
        """
        ...

    def committed(self) -> Mapping[tuple[str, int], int]:
        """Return the consumer offsets that the connector's group has committed, for all its
        partitions. Asks the log; raises TransportError."""
        ...

    def first_record(self, topic: str, partition: int, start: int, end: int) -> int | None:
        """Return the offset of the first committed record that the log now has with start <= offset
        < end, before transforms; None if there is none. Takes as long as reading the record.

        Raises:
            TransportError: The log is out of reach, or retention has just removed the records.
        """
        ...

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the timestamp of the committed record at `offset`; None if the log no longer has
        it. Takes as long as reading it.

        Raises:
            LookupError: The log has not reached that offset.
            TransportError: As for `first_record`.
        """
        ...

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Return the reporter; None without a dead letter queue and `errors.log.enable`. In that
        case raise the record's error instead. Source: KIP-610."""
        ...

    def request_commit(self) -> None:
        """Request a commit of offsets after the present call, before the interval ends."""
        ...

    @property
    def stopping(self) -> bool: ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    def log(self, message: str) -> None:
        """Tell the user something: a warning in the worker's log. Not for each record."""
        ...


class SinkTask(ABC):
    """One task of a sink connector. Calls: start, open, (put | pre_commit)*, close, stop."""

    IN_WORKER_PROCESS: ClassVar[bool] = False
    """As in `SourceTask`."""

    context: SinkTaskContext

    def start(self, config: Mapping[str, str]) -> None: ...

    def open(self, partitions: Collection[tuple[str, int]]) -> None: ...

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write `records`. There are none if `timeout`, or `offset.flush.interval.ms`, has passed
        without any."""

    def takes_batches(self) -> bool:
        """Return whether `put_batch` takes batches; called once, after `start`. Else, and if a
        transform or a converter needs records, everything goes to `put` as records."""
        return False

    def put_batch(self, batch: SinkBatch) -> None:
        """Write records that are one batch in the log, as `put` does. Needs pyarrow.

        It is never called while records wait for `put`, so the order of the log is kept.
        """
        # Not abstract: only a task whose `takes_batches` is true has it.
        raise NotImplementedError(f"{type(self).__name__} takes batches and has no put_batch")

    def flush(self) -> None: ...

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Return those of the given offsets (next one per partition) that are safe to commit."""
        self.flush()
        return offsets

    def close(self, partitions: Collection[tuple[str, int]]) -> None: ...

    def stop(self) -> None: ...


class PlannedSinkTaskContext(Protocol):
    """Context of a task of planned batches, which reads the log by offsets without being a group
    member."""

    @property
    def log(self) -> RecordLog: ...

    @property
    def group(self) -> str:
        """Consumer group whose offsets show the progress (``connect-<connector>``)."""
        ...

    @property
    def topics(self) -> Sequence[str]:
        """Topics that the sink reads; with ``topics.regex``, those that match now."""
        ...

    @property
    def stopping(self) -> bool: ...

    @property
    def log_elsewhere(self) -> tuple[str, str]:
        """Way for another process to open the same `log` with the same client settings:
        ``module:function`` and its argument. The function returns an object with `record_log` and
        `close`. The argument may hold passwords: show it to nobody."""
        ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Return the reporter for single records with a `SinkRecord.original`; None if none is
        configured. Wait for `result()` of the last report before committing the batch. Reported
        records count as skipped."""
        ...

    def skipped(self, count: int, detail: str) -> None:
        """Report records that `errors.tolerance` let go and that were not sent to the reporter."""
        ...


class PlannedSinkTask(ABC):
    """A sink task that itself plans, runs and commits whole batches, guarded by a manifest of its
    own.

    It runs in a process of the worker's machine, not on an executor. One thread calls: start,
    run_batch*, stop.
    """

    context: PlannedSinkTaskContext
    batch_files: int = 0
    """Number of files of the last batch, which is shown to users."""
    batch_interval_ms: int = 0
    """Time that records may wait for others to share their batch, which is shown to users."""

    def start(self, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def run_batch(self) -> int:
        """Run and commit the next batch. Return how many records it covered, 0 if there were
        none."""

    def stop(self) -> None: ...


class ExactlyOnceSupport(StrEnum):
    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorContext(Protocol):
    @property
    def offset_reader(self) -> OffsetReader:
        """Source offsets that the connector's tasks have committed. Each call of the reader first
        reads the offsets topic to its end, and may come from any thread. Source:
        SourceConnectorContext.

        Raises:
            AttributeError: A sink connector has no source offsets.
        """
        ...

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call `task_configs` again."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Fail the connector."""
        ...


class Connector(ABC):
    """Base of both kinds. Instances live in a worker; `start` and `stop` come in pairs."""

    VERSION: ClassVar[str] = "0"
    REQUIRES_RUNNER: ClassVar[str | None] = None
    """Name of the only runner that can run its tasks ("spark"); None for any."""
    PASSED_ON: ClassVar[tuple[str, ...]] = ()
    """Prefixes of keys that the connector passes on to another library, under any name."""
    JAVA_TASK: ClassVar[str | None] = None
    """Java's task class, if the connector exists in Java with the same settings and offsets. It is
    written as ``task.class`` to the config topic, so that Java workers of the group can run the
    task."""

    context: ConnectorContext

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the connector's own keys."""
        return ConfigDef()

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return errors by key, beyond those that `config_def` finds."""
        return {}

    def start(self, config: Mapping[str, str]) -> None:
        """Start the connector. The default keeps the config as `self.config`."""
        self.config: Mapping[str, str] = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return one config for each task, at most `tasks_max`. The default is one task with the
        connector's config.

        Raises:
            NotImplementedError: `start` was overridden and keeps no `self.config`.
        """
        config = getattr(self, "config", None)
        if config is None:
            # Not abstract: most connectors define neither this nor `start`.
            name = type(self).__name__
            raise NotImplementedError(
                f"{name} has no task configs: its start keeps no self.config, and it defines no "
                f"task_configs. Call super().start(config) in start, or define task_configs"
            )
        return [config]

    def stop(self) -> None: ...


class SourceConnector(Connector):
    TASK: ClassVar[type[SourceTask]]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Return whether the connector supports exactly-once with this config; None if unknown. A
        config with `exactly.once.support` = required needs SUPPORTED. Source: KIP-618."""
        return None

    @classmethod
    def can_define_transaction_boundaries(
        cls, config: Mapping[str, str]
    ) -> ExactlyOnceSupport | None:
        return ExactlyOnceSupport.UNSUPPORTED

    @classmethod
    def alter_offsets(
        cls,
        config: Mapping[str, str],
        offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]],
    ) -> bool:
        """Check a change of offsets by a user; raise to refuse. Return True if nothing else must be
        altered. Source: KIP-875. Differs: if it has not returned when the request times out,
        Headgate writes nothing."""
        return False


class SinkConnector(Connector):
    TASK: ClassVar[type[SinkTask] | type[PlannedSinkTask]]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Return whether each record is written once, also after a failure, because data and
        progress are stored together. None if unknown; users are then told beforehand that it writes
        at least once. (Java does not ask sinks.)"""
        return None

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[tuple[str, int], int | None]
    ) -> bool:
        return False

    @classmethod
    def reached_offsets(
        cls, config: Mapping[str, str], committed: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], int]:
        """Return the offsets that users see and that a reset takes back; `committed` are the
        group's. A sink that stores its own progress, which its group only follows, returns that.
        (Java's cannot.)"""
        return committed


# -- the way of a record between task and log --


class Converter(Protocol):
    """Converts values to bytes and back. Raises `DataError`."""

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None: ...

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        """Return `value` as bytes. With a `schema` it must fit it; else any value that the
        converter knows."""
        ...

    def to_connect(self, topic: str, data: bytes | None) -> Value: ...

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the value with its schema; the schema is None if the bytes do not tell it."""
        ...


class Transform(Protocol):
    """Changes a record, or drops it by returning None."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def apply_source(self, record: SourceRecord) -> SourceRecord | None: ...

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None: ...
