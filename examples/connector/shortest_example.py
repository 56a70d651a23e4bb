"""The least that a source and a sink need: docs/build/connectors.md shows them."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.connector import (
    ConfigDef,
    ExactlyOnceSupport,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
)

OPTIONS = ConfigDef().define("topic").define("last", Type.INT, default=3)
CLOCK = {"clock": "only"}


@dataclass(frozen=True)
class Options:
    topic: str
    last: int


class TickTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        self.options = Options(**OPTIONS.parse(config))
        committed = self.context.offsets.offset(CLOCK)
        self.number: int = committed["number"] if committed else 0

    def poll(self) -> Sequence[SourceRecord] | None:
        if self.number >= self.options.last:
            self.context.wait(1.0)
            return None
        self.number += 1
        tick = f"tick {self.number}"
        return [SourceRecord(CLOCK, {"number": self.number}, self.options.topic, tick)]


class TickSource(SourceConnector):
    TASK = TickTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return OPTIONS


class TableTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self.db = sqlite3.connect(config["file"])
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS records (topic, part, at, value,"
            " PRIMARY KEY (topic, part, at))"
        )

    def put(self, records: Sequence[SinkRecord]) -> None:
        rows = [(each.topic, each.partition, each.offset, each.value) for each in records]
        with self.db:
            self.db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", rows)

    def stop(self) -> None:
        self.db.close()


class TableSink(SinkConnector):
    TASK = TableTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("file")

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED  # a row that comes again replaces itself
