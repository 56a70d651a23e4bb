"""Config settings that all table sinks have."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.validators import at_least, one_of
from headgate_connectors.output.folders import folder_fault
from headgate_connectors.tables.change_events import DEBEZIUM, NONE
from headgate_connectors.tables.columns import Evolution
from headgate_connectors.tables.sink import TableSettings


def define_shared(config: ConfigDef) -> ConfigDef:
    """Return `config` with the settings of all table sinks that can update rows by key."""
    high = Importance.HIGH
    return define_batches(
        config.define("write.mode", Type.STRING, "append", one_of("append", "upsert"), high,
                "append: each record is a row. upsert: a record replaces the row with its key, and "
                "a record without a value (a tombstone) deletes it.")
        .define("key.columns", Type.LIST, "", None, high,
                "For upsert: columns of the value that are the key. A tombstone has them in the "
                "struct of its key, or is the one column itself.")
        .define("change.events", Type.STRING, NONE, one_of(NONE, DEBEZIUM), Importance.MEDIUM,
                "For upsert: debezium takes Debezium's events with op, before and after. A row "
                "that was made or changed replaces the one with its key; a deleted one deletes it.")
    )  # fmt: skip


def define_batches(config: ConfigDef) -> ConfigDef:
    """Return `config` with the settings of all sinks that write batches of rows."""
    medium, low = Importance.MEDIUM, Importance.LOW
    return (
        config
        .define("schema.evolution", Type.STRING, Evolution.NONE.value,
                one_of(*(each.value for each in Evolution)), medium,
                "What becomes of a column that the table has not, or has with another type. Choose "
                "'none' to refuse the record, 'add_columns' to add new columns. Choose 'widen' to "
                "add them and to take values of a narrower type, each unchanged. It also makes a "
                "column of an Iceberg table wider where the format allows that.")
        .define("rotate.records", Type.INT, 100_000, at_least(1), medium,
                "Records from which on a batch is committed.")
        .define("rotate.bytes", Type.LONG, 128 * 1024 * 1024, at_least(1), medium,
                "Bytes, as Arrow has them, from which on a batch is committed.")
        .define("rotate.interval.ms", Type.LONG, 5_000, at_least(0), medium,
                "Time from the first record of a batch until it is committed.")
        .define("on.null.value", Type.STRING, "fail", one_of("fail", "skip"), low,
                "For append: what becomes of a record without a value (a tombstone): fail, or "
                "skip.")
        .define("on.missing.output", Type.STRING, "fail", one_of("fail", "accept"), low,
                "What to do where the table knows nothing of records that the sink has committed. "
                "Choose 'fail' to fail the task, 'accept' to go on without those records.")
    )  # fmt: skip


def shared_settings(settings: Mapping[str, Any]) -> TableSettings:
    """Return the `TableSettings` of the parsed settings of `define_shared`."""
    return TableSettings(
        keys=settings["key.columns"] if settings.get("write.mode") == "upsert" else (),
        evolution=Evolution(settings["schema.evolution"]),
        skips_null=settings["on.null.value"] == "skip",
        accepts_loss=settings["on.missing.output"] == "accept",
        rows=settings["rotate.records"],
        size=settings["rotate.bytes"],
        interval_s=settings["rotate.interval.ms"] / 1000,
        change_events=settings.get("change.events", NONE) == DEBEZIUM,
    )


def shared_validation(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the errors by key that the definition of a single setting cannot find."""
    upsert = config.get("write.mode", "append") == "upsert"
    keys = config.get("key.columns", "").strip()
    if upsert and not keys:
        return {"key.columns": ["is empty, expected the columns of the key: write.mode is upsert"]}
    if keys and not upsert:
        return {"key.columns": [f"is {keys}, which needs write.mode = upsert"]}
    events = config.get("change.events", NONE)
    if events != NONE and not upsert:
        return {"change.events": [f"is {events}, which needs write.mode = upsert"]}
    return {}


def folder_errors(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the errors, by key, of ``path``, the folder of a table."""
    path = config.get("path", "").strip()
    if "://" in path:
        return {"path": [f"{path} is an address, expected a folder of this machine"]}
    fault = folder_fault(path) if path else None
    return {} if fault is None else {"path": [fault]}
