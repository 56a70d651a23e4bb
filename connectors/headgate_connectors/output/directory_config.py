"""Config settings of DirectorySink."""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.validators import at_least, non_empty, one_of
from headgate_connectors.formats.column_kinds import KINDS, column_types
from headgate_connectors.output.folders import folder_fault
from headgate_connectors.output.partitions import partition_faults
from headgate_connectors.output.writers import ENDINGS

CONFIG = (
    ConfigDef()
    .define(
        "path",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The folder for the files; it is made if it is not there.",
    )
    .define(
        "format",
        Type.STRING,
        "parquet",
        one_of(*ENDINGS),
        Importance.HIGH,
        "Format of the files: parquet, arrow, csv, or jsonl (one JSON object a line).",
    )
    .define(
        "rotate.records",
        Type.INT,
        1_000_000,
        at_least(1),
        Importance.MEDIUM,
        "Most records of one file.",
    )
    .define(
        "rotate.bytes",
        Type.LONG,
        128 * 1024 * 1024,
        at_least(1),
        Importance.MEDIUM,
        "Bytes from which on a file is finished.",
    )
    .define(
        "rotate.interval.ms",
        Type.LONG,
        5_000,
        at_least(0),
        Importance.MEDIUM,
        "Time from the first record of a file until it is published.",
    )
    .define(
        "partition.by",
        Type.LIST,
        (),
        importance=Importance.MEDIUM,
        documentation="Folders of the files, Hive style, such as city=Rome/day=2026-11-26. Each is "
        "the name of a field, or NAME=PATTERN for the record's time, such as day=%Y-%m-%d, with %Y "
        "%m %d %H %M. By default all files are in one folder.",
    )
    .define(
        "partition.timezone",
        Type.STRING,
        "UTC",
        non_empty,
        Importance.LOW,
        "Time zone of the patterns of partition.by, such as Europe/Berlin.",
    )
    .define(
        "partition.keep.columns",
        Type.BOOLEAN,
        False,
        importance=Importance.LOW,
        documentation="Whether the fields of partition.by are in the files, too. Readers take them "
        "from the names of the folders.",
    )
    .define(
        "columns.types",
        Type.STRING,
        "",
        column_types,
        Importance.MEDIUM,
        "Types of columns of the folder before the first record, such as 'id: int64, price: "
        f"decimal(20,4)'. By default the first record with a column decides. Types are {KINDS}.",
    )
    .define(
        "schema.evolution",
        Type.STRING,
        "add_columns",
        one_of("add_columns", "widen"),
        Importance.MEDIUM,
        "What becomes of a record whose column has another type in the folder. Choose "
        "'add_columns' to refuse it: new columns alone are taken. Choose 'widen' to take a "
        "narrower type, too, each value unchanged.",
    )
    .define(
        "open.max",
        Type.INT,
        100,
        at_least(1),
        Importance.LOW,
        "Most files that a task writes at a time. One more, and the largest group of files is "
        "published before its time.",
    )
    .define(
        "on.null.value",
        Type.STRING,
        "fail",
        one_of("fail", "skip"),
        Importance.LOW,
        "What becomes of a record without a value (a tombstone): fail, or skip.",
    )
    .define(
        "on.missing.output",
        Type.STRING,
        "fail",
        one_of("fail", "rewrite", "accept"),
        Importance.LOW,
        "What to do where a committed file, or the whole folder, is gone. Choose 'fail' to fail "
        "the task, 'rewrite' to write what is gone anew from what the log still has, 'accept' to "
        "go on without those records.",
    )
)

DIRECTORY: Final = "headgate.directory"
"""Key of a task config with the absolute path of the sink's folder."""


def path_fault(path: str) -> str | None:
    """Return why files cannot be written to `path`. None: nothing is seen that prevents it."""
    if "://" in path:
        return (
            f"{path} is an address, expected a folder of this machine: a commit creates a file "
            "whole, on the disk, and only if it is not there yet, which SFTP and object stores do "
            "not promise. Mount the folder here"
        )
    return (folder_fault(path) or None) if path else None


def config_faults(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return, by key, the faults that only several settings together show."""
    faults = dict(partition_faults(config))
    types = config.get("columns.types", "").strip()
    if types and config.get("format", "").strip() == "jsonl":
        text = "lines of JSON have no columns in common: set another format, or leave it out"
        faults["columns.types"] = [str(ConfigError.of("columns.types", types, text))]
    return faults
