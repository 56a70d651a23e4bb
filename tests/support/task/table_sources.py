"""Tasks of a table source, driven by hand: their batches and their offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.connector.api import (
    OffsetUpdate,
    Partition,
    SkippedRecord,
    SourceConnector,
    SourceTask,
)
from headgate.connector.batches import SourceBatch
from headgate.testing import FakeConnectorContext, FakeSourceContext

Offsets = Sequence[tuple[Partition, Mapping[str, Any]]]


class Read:
    """What tasks have given: batches in order, and the offsets that they reached."""

    def __init__(self, offsets: Offsets = ()) -> None:
        self.batches: list[SourceBatch] = []
        self.skipped: list[SkippedRecord] = []
        self.offsets: dict[str, tuple[Partition, Mapping[str, Any]]] = {}
        for partition, offset in offsets:
            self.reach(partition, offset)

    def reach(self, partition: Partition, offset: Mapping[str, Any]) -> None:
        self.offsets[repr(sorted(partition.items()))] = (dict(partition), dict(offset))

    def take(self, items: Any) -> None:
        for item in items or ():
            if isinstance(item, SourceBatch):
                self.batches.append(item)
            elif isinstance(item, SkippedRecord):
                self.skipped.append(item)
            else:
                assert isinstance(item, OffsetUpdate)
            self.reach(item.source_partition, item.source_offset)

    @property
    def committed(self) -> list[tuple[Partition, Mapping[str, Any]]]:
        return list(self.offsets.values())

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.values.to_pylist()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def table(self) -> Any:
        return pa.Table.from_batches([batch.values for batch in self.batches])


def tasks_of(
    connector: type[SourceConnector],
    config: Mapping[str, str],
    offsets: Offsets = (),
    *,
    first: Offsets | None = None,
    keeps_batches: bool = False,
) -> list[SourceTask]:
    """Start as many tasks as the connector wants, and return them.

    Args:
        first: the offsets that the connector sees. None: those of the tasks.
    """
    made = connector()
    made.context = FakeConnectorContext(offsets if first is None else first)
    made.start(config)
    found: list[SourceTask] = []
    for given in made.task_configs(int(config.get("tasks.max", "1"))):
        task = made.TASK()
        context = FakeSourceContext(offsets)
        context.takes_batches = context.keeps_batches = keeps_batches
        task.context = context
        task.start(given)
        found.append(task)
    made.stop()
    return found


def drain(task: SourceTask, read: Read | None = None) -> Read:
    """Poll the task until it gives nothing, and return what was read."""
    found = read or Read()
    while items := task.poll():
        found.take(items)
    return found
