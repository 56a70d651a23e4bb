"""Settings of SparkSource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.topic_names import valid_topic
from headgate.connector.validators import at_least, non_empty, one_of

OPTION: Final = "option."
"""Prefix of settings that are Spark's own options."""
BULK, INCREMENTING, FILES = "bulk", "incrementing", "files"
TASK: Final = "headgate.task"
TASKS: Final = "headgate.tasks"
"""Keys that the connector adds to the configs of its tasks: the number of each, and the number of
tasks."""
_SAFE: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
    "jdbc": {"preferTimestampNTZ": "true"},
}
"""Options that keep values as they are, unless users set them. Without them a line that does not
parse becomes nulls. A CSV file with its columns in another order swaps them, and a local time
becomes an instant."""

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CONFIG: Final = (
    ConfigDef()
    .define("topic", Type.STRING, validator=valid_topic, importance=_HIGH,
            documentation="The topic that the rows go to.")
    .define("format", Type.STRING, validator=non_empty, importance=_HIGH,
            documentation="Format as spark.read.format takes it: parquet, orc, avro, csv, json, "
            "xml, text, jdbc, or that of any data source that this Spark has. Options for it are "
            "given as option.NAME.")
    .define("mode", Type.STRING, validator=one_of(BULK, INCREMENTING, FILES), importance=_HIGH,
            documentation="bulk: all rows, once. incrementing: rows whose incrementing.column is "
            "greater than before, for ever. files: the rows of each file below path, and of those "
            "that come later.")
    .define("path", Type.STRING, "", importance=_HIGH,
            documentation="What is loaded: a file, a folder or an address that Spark can read. "
            "Empty: the options say it all.")
    .define("schema", Type.STRING, "", importance=_MEDIUM,
            documentation="Columns and types as Spark's DDL, such as 'id BIGINT, name STRING'. "
            "Empty: Spark finds them out.")
    .define("incrementing.column", Type.STRING, "", importance=_HIGH,
            documentation="For incrementing: a column of whole numbers, never null, each once. New "
            "rows must have greater ones.")
    .define("incrementing.settle.ms", Type.LONG, 5_000, at_least(0), _MEDIUM,
            "For incrementing: how long after a greatest number was seen the rows up to it are "
            "read. A transaction that took a smaller number may commit meanwhile; one that takes "
            "longer than this is lost.")
    .define("shares", Type.INT, 1, at_least(1), _MEDIUM,
            "For bulk and incrementing: into how many shares the rows are divided, each of which "
            "is read by one task. It is not changed once rows were written.")
    .define("batch.rows", Type.INT, 5_000, at_least(1), _LOW,
            "Most rows of one batch, which is one transaction.")
    .define("poll.interval.ms", Type.LONG, 5_000, at_least(10), _MEDIUM,
            "How long to wait before looking for new rows or files again.")
    .define("files.settle.ms", Type.LONG, 2_000, at_least(0), _LOW,
            "For files: a file is read when it was last changed at least so long ago.")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    topic: str
    format: str
    mode: str
    path: str
    schema: str
    options: Mapping[str, str]
    """Options of Spark. They may hold passwords."""
    column: str
    settle_s: float
    shares: int
    rows: int
    interval_s: float
    files_settle_s: float
    task: int
    tasks: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "Settings":
        parsed = CONFIG.parse({key: value for key, value in config.items() if key in CONFIG.keys})
        return cls(
            topic=parsed["topic"],
            format=parsed["format"].strip(),
            mode=parsed["mode"],
            path=parsed["path"].strip(),
            schema=parsed["schema"].strip(),
            options=options_of(config),
            column=parsed["incrementing.column"].strip(),
            settle_s=parsed["incrementing.settle.ms"] / 1000,
            shares=parsed["shares"],
            rows=parsed["batch.rows"],
            interval_s=parsed["poll.interval.ms"] / 1000,
            files_settle_s=parsed["files.settle.ms"] / 1000,
            task=int(config.get(TASK, "0")),
            tasks=int(config.get(TASKS, "1")),
        )

    @property
    def source_setting(self) -> tuple[str, str]:
        """The setting that names the source, and its value."""
        by_name = {name.lower(): (name, value) for name, value in self.options.items()}
        for known in ("path", "dbtable", "query"):
            if known in by_name:
                name, value = by_name[known]
                return f"{OPTION}{name}", value
        return ("path", self.path) if self.path else ("format", self.format)

    @property
    def source(self) -> str:
        """The source, as source partitions name it."""
        return self.source_setting[1]

    @property
    def my_shares(self) -> Sequence[int]:
        """Numbers of the shares that this task reads."""
        return range(self.task, self.shares, self.tasks)

    def reader(self, session: Any) -> Any:
        """Return Spark's DataFrameReader with the format, the options and the schema."""
        reader = session.read.format(self.format)
        for name, value in {**_SAFE.get(self.format.lower(), {}), **self.options}.items():
            reader = reader.option(name, value)
        return reader.schema(self.schema) if self.schema else reader

    def load(self, session: Any) -> Any:
        """Return the DataFrame of all that the settings name."""
        reader = self.reader(session)
        return reader.load(self.path) if self.path else reader.load()


def options_of(config: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's options among the settings of a connector, by their names."""
    return {key[len(OPTION) :]: value for key, value in config.items() if key.startswith(OPTION)}


def absolute(path: str) -> str:
    """Return `path` as an absolute one, if it is a relative path of the file system."""
    return path if not path or "://" in path or ":/" in path else str(Path(path).absolute())
