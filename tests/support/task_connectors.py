"""Connectors that tests run on every task runner; named ``support.task_connectors:<Class>``."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headgate.connector.api import (
    PlannedSinkTask,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SkippedRecord,
    SourceConnector,
    SourceRecord,
    SourceTask,
)


class CountingTask(SourceTask):
    """Numbers from the committed one on, up to ``limit``, in batches of ``batch``."""

    def start(self, config: Mapping[str, str]) -> None:
        if "start.fails" in config:
            raise ValueError("this task does not start")
        self._config = config
        self._partition = {"task": config.get("task", "0")}
        found = self.context.offsets.offset(self._partition)
        self._next = 0 if found is None else int(found["next"])
        self._limit = int(config.get("limit", "1000000000"))
        self._batch = int(config.get("batch", "10"))
        if "pid.file" in config:
            Path(config["pid.file"]).write_text(str(os.getpid()))

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._next >= int(self._config.get("fails.at", "1000000000")):
            raise ValueError("this poll fails")
        if self._next >= self._limit:
            self.context.wait(0.05)
            return None
        if "pause.s" in self._config:
            self.context.wait(float(self._config["pause.s"]))
        numbers = range(self._next, min(self._next + self._batch, self._limit))
        self._next = numbers.stop
        topic = self._config.get("topic", "numbers")
        return [
            SourceRecord(self._partition, {"next": n + 1}, topic, f"{n}", key=f"{n % 7}")
            for n in numbers
        ]


class HangingTask(CountingTask):
    """Hears no stop: neither in `poll` nor, with ``hangs.in.stop``, in `stop`."""

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._next >= 20:
            time.sleep(3600)
        return super().poll()


class CountingSource(SourceConnector):
    TASK = CountingTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{"task": str(n)} for n in range(tasks_max)]


class HangingSource(SourceConnector):
    TASK = HangingTask


class CollectingTask(SinkTask):
    """Appends what it is given to a file, a line each."""

    def start(self, config: Mapping[str, str]) -> None:
        self._path = Path(config["path"])

    def put(self, records: Sequence[SinkRecord]) -> None:
        with self._path.open("a") as out:
            out.writelines(f"{item.topic}-{item.partition}:{item.value}\n" for item in records)


class CollectingSink(SinkConnector):
    TASK = CollectingTask


class PlannedTask(PlannedSinkTask):
    """Counts what is in its topics and calls that a batch."""

    def start(self, config: Mapping[str, str]) -> None:
        self._seen = 0

    def run_batch(self) -> int:
        end = sum(self.context.log.end_offsets(self.context.topics).values())
        found, self._seen = end - self._seen, end
        return found


class PlannedSink(SinkConnector):
    TASK = PlannedTask
