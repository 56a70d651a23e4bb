"""Config settings that all table sources have."""

from collections.abc import Mapping
from typing import Any

from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.topic_names import valid_topic
from headgate.connector.validators import at_least, one_of
from headgate_connectors.tables.source import WHOLE, SourceSettings

LATEST = "latest"


def define_source(config: ConfigDef, starting: str, step: str, interval_ms: int) -> ConfigDef:
    """Return `config` with the settings of all table sources added.

    Args:
        starting: name of the setting that says where a new connector begins.
        step: the format's word for a step: version or snapshot.
        interval_ms: default of ``poll.interval.ms``.
    """
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    return (
        config.define("topic", Type.STRING, validator=valid_topic, importance=high,
                documentation="The topic that the rows go to.")
        .define(starting, Type.STRING, WHOLE, _starting, medium,
                f"Where a connector begins that has no offsets yet. whole: all rows of the table "
                f"as it is now, then those that each later {step} adds. latest: only the later "
                f"ones. A number: what that {step} and later ones add.")
        .define("on.change", Type.STRING, "fail", one_of("fail", "skip"), medium,
                f"What becomes of a {step} that takes rows away or rewrites them, as by a delete, "
                "an update, a merge, an overwrite or a restore. Choose 'fail' to fail the task "
                f"with its name, 'skip' to pass over it. The log then says so, and the rows that "
                "it adds are not given.")
        .define("shares", Type.INT, 1, at_least(1), medium,
                "Into how many shares the rows are divided, by the names of their files. Each "
                "share is read by one task and is in order. It is not changed once rows were "
                "written.")
        .define("batch.rows", Type.INT, 5_000, at_least(1), low,
                "Most rows of one batch, which is one transaction. Where the log keeps batches, "
                "65,536 unless this is set.")
        .define("poll.interval.ms", Type.LONG, interval_ms, at_least(10), medium,
                f"How long to wait before looking for a new {step} again.")
    )  # fmt: skip


def source_settings(settings: Mapping[str, Any], table: str, starting: str) -> SourceSettings:
    """Return the `SourceSettings` of the parsed settings of `define_source`.

    Args:
        table: name of the table in source partitions.
    """
    return SourceSettings(
        topic=settings["topic"],
        table=table,
        starting=settings[starting].strip(),
        skips=settings["on.change"] == "skip",
        shares=settings["shares"],
        rows=settings["batch.rows"],
        interval_s=settings["poll.interval.ms"] / 1000,
    )


def _starting(name: str, value: Any) -> None:
    text = value.strip()
    if text not in (WHOLE, LATEST) and not (text.isascii() and text.isdecimal()):
        raise ConfigError.of(name, value, f"expected {WHOLE}, {LATEST}, or a whole number")
