"""A source and a sink of one's own: docs/build/connectors.md goes through them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.connector import (
    ConfigDef,
    ExactlyOnceSupport,
    Importance,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
    at_least,
    non_empty,
)

BATCH = 100


class CountTask(SourceTask):
    """Counts from where the last committed source offset says."""

    def start(self, config: Mapping[str, str]) -> None:
        settings = COUNT_CONFIG.parse(config)
        self.topic: str = settings["topic"]
        self.last: int = settings["last"]
        self.partition = {"counter": config["counter"]}
        committed = self.context.offsets.offset(self.partition)
        self.next = 1 if committed is None else int(committed["number"]) + 1

    def poll(self) -> Sequence[SourceRecord] | None:
        if self.next > self.last:
            self.context.wait(0.5)  # wakes up at once for stop or pause
            return None  # nothing to read: this task is idle
        numbers = range(self.next, min(self.next + BATCH, self.last + 1))
        self.next = numbers.stop
        name = self.partition["counter"]
        return [
            SourceRecord(self.partition, {"number": n}, self.topic, f"{name}:{n}") for n in numbers
        ]


COUNT_CONFIG = (
    ConfigDef()
    .define("topic", Type.STRING, validator=non_empty, importance=Importance.HIGH)
    .define("last", Type.INT, 1000, at_least(1), Importance.MEDIUM, "Where to stop counting.")
)


class CountSource(SourceConnector):
    """As many counters as `tasks.max` says, each from 1 to `last`."""

    VERSION = "1.0"
    TASK = CountTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return COUNT_CONFIG

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED  # as the offset alone says where to go on

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{**self.config, "counter": f"c{n}"} for n in range(tasks_max)]


class AppendTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        path = Path(config["file"])
        self.file = path.open("a", encoding="utf-8")

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.file.writelines(f"{record.value}\n" for record in records)

    def flush(self) -> None:
        """After this, consumer offsets are committed: what was put must be safe now."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def stop(self) -> None:
        self.file.close()


class AppendSink(SinkConnector):
    """At least once: what was written after the last commit is written again after a crash."""

    VERSION = "1.0"
    TASK = AppendTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("file", Type.STRING, validator=non_empty)

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.UNSUPPORTED
