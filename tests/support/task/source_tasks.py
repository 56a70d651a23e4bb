"""A source task driven by hand: its context, and its polls until it is idle."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.connector.api import (
    Partition,
    SkippedRecord,
    SourceConnector,
    SourceItem,
    SourceRecord,
)


class Offsets:
    """Committed source offsets, kept as the log keeps them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}

    def commit(self, record: SourceItem) -> None:
        self.stored[tuple(record.source_partition.items())] = record.source_offset

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        return self.stored.get(tuple(partition.items()))

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        return [self.offset(partition) for partition in partitions]

    def committed(self) -> list[tuple[Partition, Mapping[str, Any]]]:
        return [(dict(partition), offset) for partition, offset in self.stored.items()]


class Context:
    """A task's context that counts waits and does not sleep."""

    transaction = None

    def __init__(self, offsets: Offsets, *, until_idle: bool = True) -> None:
        self.offsets = offsets
        self.until_idle = until_idle
        self.takes_batches = False
        self.keeps_batches = False
        self.quarantined: list[str] = []
        self.stopping = False
        self.waited: list[float] = []
        self.told: list[str] = []
        self.awaited = False
        self.worker_settings: Mapping[str, str] = {}
        self.cluster = "test"

    def await_input(self) -> None:
        self.awaited = True

    def quarantine(self, inputs: Sequence[str]) -> None:
        self.quarantined = list(inputs)

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return self.stopping

    def log(self, message: str) -> None:
        self.told.append(message)


class Run:
    """One start of one task of `connector_class`."""

    def __init__(
        self,
        connector_class: type[SourceConnector],
        config: Mapping[str, str],
        offsets: Offsets | None = None,
        task: int = 0,
        *,
        until_idle: bool = True,
        start: bool = True,
    ) -> None:
        """If `start` is False, the caller starts the task, with `config`."""
        self.offsets = Offsets() if offsets is None else offsets
        connector = connector_class()
        connector.start(config)
        self.config = connector.task_configs(int(config.get("tasks.max", "1")))[task]
        self.context = Context(self.offsets, until_idle=until_idle)
        self.task = connector_class.TASK()
        self.task.context = self.context
        if start:
            self.task.start(self.config)

    def poll(self) -> list[SourceItem] | None:
        """Poll once. Return None when the task is idle, and an empty list when it waits for
        input."""
        self.context.awaited = False
        found = list(self.task.poll() or [])
        return found if found or self.context.awaited else None

    def rest(self, polls: int = 200) -> list[SourceItem]:
        """Poll until the task is idle, and return all that it gave."""
        result: list[SourceItem] = []
        for _ in range(polls):
            found = self.poll()
            if found is None:
                return result
            result += found
        raise AssertionError(f"not idle after {polls} polls; got {len(result)} records")


def values(records: Iterable[SourceItem]) -> list[Any]:
    return [record.value for record in records if isinstance(record, SourceRecord)]


def reasons(records: Iterable[SourceItem]) -> list[str]:
    return [record.reason for record in records if isinstance(record, SkippedRecord)]
