"""What authors of connectors implement. Kafka Connect's words and life cycles, Python's shapes.

A connector is a class that says how its work is divided (`task_configs`) and which task class does
it. A source task yields records from `poll`; a sink task takes them in `put`. Connector code never
runs on the thread that decides: the worker calls connectors with a deadline, and tasks run in their
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
"""Whatever the converter takes: str, bytes, numbers, bool, None, and dicts and lists of them. With
a schema (`headgate.connector.schema`) Decimal, date, time and datetime too."""


class RetriableError(Exception):
    """Raised by a task: try the same call again later. Source: RetriableException."""


@dataclass(slots=True)
class SourceRecord:
    """One record and the source offset that is reached once it is committed."""

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
    """Schema of the value, which is checked against it when it is converted; None: without."""
    header_schemas: tuple[Schema | None, ...] = ()
    """One for each header, in their order; empty: no header has a schema."""


@dataclass(slots=True)
class SkippedRecord:
    """Yielded by `poll` in place of a record that cannot be read: with `errors.tolerance` = none
    the task fails with `reason`, with `all` it is counted, logged, and its source offset is passed
    over."""

    source_partition: Partition
    source_offset: Partition
    reason: str
    """Names the input and the position in it."""
    count: int = 1
    """How many records are lost with it, where that is known."""
    raw: bytes | None = None
    """What stood there, for a dead letter queue; None: it cannot be had."""


@dataclass(slots=True)
class OffsetUpdate:
    """Yielded by `poll` to commit a source offset without a record, in the order of the batch.
    Source: KIP-910."""

    source_partition: Partition
    source_offset: Partition


SourceItem: TypeAlias = SourceRecord | SkippedRecord | OffsetUpdate
"""What `poll` may yield."""


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
    """Schema of the value as its converter read it; None: the converter gives none."""
    header_schemas: tuple[Schema | None, ...] = ()
    """One for each header, in their order; empty: no header has a schema."""
    original: ConsumerRecord | None = field(default=None, repr=False, compare=False)
    """The record as the log had it, which a dead letter is made of. None where nobody will ask: the
    task has no errant record reporter."""


class Reported(Protocol):
    """What became of a record that was reported."""

    def done(self) -> bool:
        """Whether the log has its dead letter."""
        ...

    def result(self, timeout: float | None = None) -> None:
        """Write it, and all that was reported before, and wait until the log has it.

        Raises:
            TransportError: the log could not be reached; what was reported is kept.
        """
        ...


class ErrantRecordReporter(Protocol):
    """Takes records that a sink task's own system has refused. From any thread. Source: KIP-610."""

    def report(self, record: SinkRecord, error: BaseException) -> Reported:
        """Log the record, and send it to the dead letter queue, as the config asks; then the task
        goes on without it.

        Returns:
            Done when the log has the dead letter. Nobody has to wait for it: offsets are committed
            after all that was reported before is written. `result()` writes it at once.

        Raises:
            DataError: `errors.tolerance` is none, so the task is to fail.
        """
        ...


class OffsetReader(Protocol):
    """Source offsets as committed when the task's producer was initialised, or later."""

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        """Committed offset of a source partition; None: it has none yet."""
        ...

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]: ...

    def committed(self) -> Sequence[tuple[Partition, Mapping[str, Any]]]:
        """All source partitions of the connector that have a source offset, those of its other
        tasks included."""
        ...


class TransactionContext(Protocol):
    """Connector-defined transactions (`transaction.boundary` = connector). Source: KIP-618.

    A transaction ends with the batch that `poll` is returning, or behind `record` of that batch.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None: ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None: ...


class SourceTaskContext(Protocol):
    @property
    def offsets(self) -> OffsetReader: ...

    @property
    def transaction(self) -> TransactionContext | None:
        """Ends transactions. None unless exactly-once is on and `transaction.boundary` is
        connector."""
        ...

    @property
    def stopping(self) -> bool:
        """The worker has asked the task to stop: a long `poll` should return."""
        ...

    @property
    def until_idle(self) -> bool:
        """The worker ends once everything is read (``headgate up --until-idle``), so what is
        there now is taken for all that will come."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep, but wake at once for stop or pause. True: the task should return from its
        `poll`."""
        ...

    def await_input(self) -> None:
        """To be called in `poll`: something is there that cannot be read yet (a file that is being
        written), so the task is not idle though this batch is empty."""
        ...

    def quarantine(self, inputs: Sequence[str]) -> None:
        """To be called in `poll`: all inputs that the task has set aside and does not read, each
        with its reason. Shown in the task's status until the next call, and at the end of
        ``headgate up``, which then fails."""
        ...

    @property
    def takes_batches(self) -> bool:
        """Whether a `SourceBatch` goes to the log without being made into records. If not, a
        transform or a converter needs records, and the task should yield records."""
        ...

    @property
    def keeps_batches(self) -> bool:
        """Whether the log keeps a `SourceBatch` whole. If not, its rows become records there, and
        a batch should have no more rows than the task would yield as records."""
        ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    @property
    def cluster(self) -> str:
        """Tells clusters apart whose workers share a machine: the same for all tasks of one, and
        another for each other one."""
        ...

    def log(self, message: str) -> None:
        """Tell the user something: a warning in the worker's log. Not for each record."""
        ...


class SourceTask(ABC):
    """One task of a source connector. Methods are called by one thread, in this order: start,
    poll*, stop."""

    IN_WORKER_PROCESS: ClassVar[bool] = False
    """The runner `spark` runs it in a process of the worker's machine, not on an executor: it
    works by jobs that it sends to Spark, which would wait for slots that resident tasks hold."""

    context: SourceTaskContext

    def start(self, config: Mapping[str, str]) -> None:
        """Open what is needed and seek to the committed source offsets (`context.offsets`)."""

    @abstractmethod
    def poll(self) -> "Iterable[SourceItem | SourceBatch] | None":
        """The next records; None or nothing when there is nothing to read now. May wait a little
        (`context.wait`). Rows of Arrow may come as a `SourceBatch` (`context.takes_batches`).

        A batch that is iterable is consumed once. Keep it to some thousands of records: with
        `transaction.boundary` = poll each batch is one transaction. While that is committed the
        next poll may be under way, unless the task overrides `commit` or `commit_record`: how the
        commit went is known to the worker when both are over.
        """

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """`record`, as `poll` gave it, is in the log.

        Exactly-once: called for each record of a transaction once that is committed, before
        `commit`; else as records are acknowledged. `metadata` is None where nothing of the record
        will ever be in the log: a transform dropped it, `errors.tolerance` let it go, or the task
        aborted its transaction. What it raises is logged. Costs nothing unless overridden.
        """

    def commit(self) -> None:
        """All that was polled before is committed, with its source offsets. What it raises is
        logged."""

    def stop(self) -> None: ...


class SinkTaskContext(Protocol):
    def offset(self, topic: str, partition: int, offset: int) -> None:
        """Ask to be given records from `offset` on."""
        ...

    def assignment(self) -> Collection[tuple[str, int]]: ...

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give no records of these until `resume`: the system is full, say, or a table is locked.

        Raises:
            ValueError: one of them is not assigned to the task.

        A pause and a resume of the connector, or a redelivery, do not end it; that the task loses
        the partition does.
        """
        ...

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Raises ValueError: one of them is not assigned to the task."""
        ...

    def timeout(self, timeout_ms: int) -> None:
        """Call `put` again after `timeout_ms` at the latest, with no records if there are none.

        Asked in a `put` that raises `RetriableError`: try it again then. Holds for the next call
        only. Raises ValueError: below 0.
        """
        ...

    def committed(self) -> Mapping[tuple[str, int], int]:
        """Consumer offsets that the connector's group has committed, of all its partitions; asks
        the log. Raises TransportError."""
        ...

    def first_record(self, topic: str, partition: int, start: int, end: int) -> int | None:
        """Offset of the first committed record that the log has now from offset `start` to before
        `end`, whatever transforms make of it; None: it has none. Takes as long as reading it.

        Raises:
            TransportError: it is out of reach, or retention took the records just now.
        """
        ...

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        """Timestamp of the committed record at `offset`; None: the log has it no more. Takes as
        long as reading it.

        Raises:
            LookupError: the log has not come so far.
            TransportError: as `first_record`.
        """
        ...

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """None where the config names no dead letter queue and `errors.log.enable` is false: then
        raise what is wrong with a record. Source: KIP-610."""
        ...

    def request_commit(self) -> None:
        """Commit offsets as soon as the call under way has returned, not only at the interval."""
        ...

    @property
    def stopping(self) -> bool: ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    def log(self, message: str) -> None:
        """Tell the user something: a warning in the worker's log. Not for each record."""
        ...


class SinkTask(ABC):
    """One task of a sink connector. Order: start, open, (put | pre_commit)*, close, stop."""

    IN_WORKER_PROCESS: ClassVar[bool] = False
    """As of a `SourceTask`."""

    context: SinkTaskContext

    def start(self, config: Mapping[str, str]) -> None: ...

    def open(self, partitions: Collection[tuple[str, int]]) -> None: ...

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take `records`: none of them when `timeout`, or `offset.flush.interval.ms`, has passed
        without any."""

    def takes_batches(self) -> bool:
        """Whether batches are given to `put_batch`. Asked once, after `start`. Without it, and
        where a transform or a converter needs records, all that comes are records to `put`."""
        return False

    def put_batch(self, batch: SinkBatch) -> None:
        """As `put`, for records that are in the log as one batch. Needs pyarrow.

        Never called with a batch while records wait, so the two keep the order of the log.
        """
        # Not abstract: only a task whose `takes_batches` is true has it.
        raise NotImplementedError(f"{type(self).__name__} takes batches and has no put_batch")

    def flush(self) -> None: ...

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Consumer offsets that are safe to commit, of those given (next offset per partition)."""
        self.flush()
        return offsets

    def close(self, partitions: Collection[tuple[str, int]]) -> None: ...

    def stop(self) -> None: ...


class PlannedSinkTaskContext(Protocol):
    """What a task of planned batches works with: it reads the log by offsets, without being a
    member of a group."""

    @property
    def log(self) -> RecordLog: ...

    @property
    def group(self) -> str:
        """Consumer group whose offsets show its progress (``connect-<connector>``)."""
        ...

    @property
    def topics(self) -> Sequence[str]:
        """Topics that the sink reads; with ``topics.regex``, those that match by now."""
        ...

    @property
    def stopping(self) -> bool: ...

    @property
    def log_elsewhere(self) -> tuple[str, str]:
        """How a process elsewhere opens the same `log` with the same client settings:
        ``module:function`` and its argument. The function returns what has `record_log` and
        `close`. The argument may hold passwords: show it to nobody."""
        ...

    @property
    def worker_settings(self) -> Mapping[str, str]: ...

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Takes single records, with their `SinkRecord.original`; None: nobody wants to hear of
        them. Wait for `result()` of the last one before the batch is committed. What was reported
        is counted as skipped."""
        ...

    def skipped(self, count: int, detail: str) -> None:
        """Tell of records that `errors.tolerance` let go and that were not reported."""
        ...


class PlannedSinkTask(ABC):
    """A sink that plans, runs and commits whole batches by itself, guarded by a manifest of its
    own.

    Runs in a process of the worker's machine, not on an executor. Order: start, run_batch*, stop,
    one thread.
    """

    context: PlannedSinkTaskContext
    batch_files: int = 0
    """Files of the last batch, for a sink that writes some: users are shown it."""
    batch_interval_ms: int = 0
    """How long records may wait for others to share their batch: the same."""

    def start(self, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def run_batch(self) -> int:
        """Take the next batch to its commit; returns how many records it covered, 0 when there were
        none."""

    def stop(self) -> None: ...


class ExactlyOnceSupport(StrEnum):
    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorContext(Protocol):
    @property
    def offset_reader(self) -> OffsetReader:
        """Source offsets that the connector's tasks have committed. Each call of the reader reads
        the offsets topic to its end first, and may come from any thread.
        Source: SourceConnectorContext.

        Raises:
            AttributeError: a sink connector has no source offsets.
        """
        ...

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call `task_configs` again."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Fail the connector."""
        ...


class Connector(ABC):
    """What both kinds share. Instances live in a worker; `start` and `stop` come in pairs."""

    VERSION: ClassVar[str] = "0"
    REQUIRES_RUNNER: ClassVar[str | None] = None
    """Name of the only task runner that can run it ("spark"), None for any."""
    PASSED_ON: ClassVar[tuple[str, ...]] = ()
    """What keys begin with that the connector hands on to something else, under any name."""
    JAVA_TASK: ClassVar[str | None] = None
    """Java's class of the task, if the connector exists in Java with the same settings and offsets.
    It is what ``task.class`` says in the config topic, so that Java workers of the group
    can run the task."""

    context: ConnectorContext

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Definitions of the connector's own keys."""
        return ConfigDef()

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Errors by key beyond what `config_def` finds."""
        return {}

    def start(self, config: Mapping[str, str]) -> None:
        """Unless you define it: keeps the config as `self.config`."""
        self.config: Mapping[str, str] = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """One config for each task, `tasks_max` of them at the most. Unless you define it: one
        task, with the connector's config.

        Raises:
            NotImplementedError: `start` was defined and keeps no `self.config`.
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
        """Whether the connector supports exactly-once with this config; None: it does not say.
        A config with `exactly.once.support` = required needs SUPPORTED. Source: KIP-618."""
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
        """Preflight of a change of offsets by a user; raise to refuse. True: nothing else to alter.
        Source: KIP-875.

        Differs: if it is not back when the request's time is over, Headgate writes nothing."""
        return False


class SinkConnector(Connector):
    TASK: ClassVar[type[SinkTask] | type[PlannedSinkTask]]

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Whether each record is written once, also after a failure: what is written and how far
        are kept together. None: the connector does not say, and is taken to write at least once,
        which users are told beforehand. (Java's sinks are not asked.)"""
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
        """Offsets as users see them, and all that a reset takes back; `committed` are those of its
        group. A sink whose group only follows a record of its own says what that has. (Java's
        cannot.)"""
        return committed


# -- the way of a record between task and log --


class Converter(Protocol):
    """Values to bytes and back. Raises `DataError`."""

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None: ...

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        """`value` as bytes. With a `schema` it must be one of it; without, any the converter
        knows."""
        ...

    def to_connect(self, topic: str, data: bytes | None) -> Value: ...

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The value with its schema, None where the bytes do not tell it."""
        ...


class Transform(Protocol):
    """Takes a record, gives one or none (dropped)."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def apply_source(self, record: SourceRecord) -> SourceRecord | None: ...

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None: ...
