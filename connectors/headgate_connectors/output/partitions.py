"""Partitions of a sink's folder, Hive style: ``city=Berlin/day=2026-11-26/``.

Spark, pyarrow and DuckDB take columns from the names of such folders. Names are escaped as Spark
escapes them, so that readers get the same value back. A value that readers would take for another
one is refused.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import DATE, Schema, SchemaType, logical_type
from headgate_connectors.formats.text_checks import is_utf8, zone_of
from headgate_connectors.output.rows import at

HIDDEN: Final = ("_", ".")
"""Prefixes of files and folders that Spark, pyarrow and DirectorySource skip."""
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES_MAX: Final = 255
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(0x01, 0x20))))
_DIRECTIVES: Final = ("%Y", "%m", "%d", "%H", "%M")
_PATTERN: Final = re.compile(r"(?:%[YmdHM]|[A-Za-z0-9_.-])+")
_PLAIN: Final = frozenset(
    {
        *(SchemaType.INT8, SchemaType.INT16, SchemaType.INT32, SchemaType.INT64),
        *(SchemaType.BOOLEAN, SchemaType.STRING),
    }
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of folders: made of a field, or of the record's timestamp if there is a pattern."""

    name: str
    pattern: str = ""


class PartitionBy:
    """The parsed setting ``partition.by``, which gives the folder of each record.

    Raises:
        ValueError: the setting cannot be parsed, or the time zone is not known.
    """

    def __init__(self, parts: Sequence[str], timezone: str) -> None:
        self._levels = [_level(part) for part in parts]
        self._by_lower = {level.name.lower(): level for level in self._levels}
        names = [level.name for level in self._levels]
        spelt = [name.lower() for name in names]
        if twice := [name for name in names if spelt.count(name.lower()) > 1]:
            same = "twice" if names.count(twice[0]) > 1 else "twice, in another spelling"
            raise ValueError(f"{twice[0]} stands there {same}, expected each once")
        try:
            self._zone = zone_of(timezone)
        except ValueError:
            raise ValueError(
                f"time zone {timezone}, expected a name such as UTC or Europe/Berlin"
            ) from None
        self.fields = [level.name for level in self._levels if not level.pattern]

    def __bool__(self) -> bool:
        return bool(self._levels)

    def folder(self, record: SinkRecord, schema: Schema | None, row: Mapping[str, Any]) -> str:
        """Return the folder of a record, relative to the sink's folder and without a slash at its
        end. Empty text: the sink's own folder.

        Args:
            schema: the STRUCT of `row`. None: the row has no schema.

        Raises:
            DataError: a field is missing, or its value cannot be the name of a folder.
        """
        levels: list[str] = []
        for level in self._levels:
            if level.pattern:
                text: str | None = self._time(record, level)
            else:
                text = _text(record, schema, row, level.name)
            value = NULL_FOLDER if text is None else escaped(text)
            name = f"{escaped(level.name)}={value}"
            if len(os.fsencode(name)) > _NAME_BYTES_MAX:
                raise DataError(
                    f"{at(record)}: {level.name} makes a folder name of "
                    f"{len(os.fsencode(name))} bytes, expected at most {_NAME_BYTES_MAX}"
                )
            levels.append(name)
        return "/".join(levels)

    def check_names(self, names: Iterable[str]) -> None:
        """Check that no field has the name of a folder level that is made of something else.

        Raises:
            DataError: a field has such a name. Readers would see only one of the two values.
        """
        for name in names:
            level = self._by_lower.get(name.lower())
            if level is not None and (level.pattern or level.name != name):
                raise DataError(
                    f"field {name} has the name of the folders {level.name}= of partition.by, "
                    "which are not made of it, and readers take both for one column: give the "
                    "folders another name, or rename the field by a transform (ReplaceField)"
                )

    def _time(self, record: SinkRecord, level: _Level) -> str:
        if record.timestamp_ms is None:
            raise DataError(f"{at(record)} has no timestamp, expected one for {level.name}")
        try:
            moment = (_EPOCH + timedelta(milliseconds=record.timestamp_ms)).astimezone(self._zone)
        except OverflowError as error:
            raise DataError(
                f"{at(record)} has the timestamp {record.timestamp_ms}, expected one in the years "
                f"1 to 9999 for {level.name}"
            ) from error
        # Not strftime: on some platforms its years before 1000 have no leading zeros.
        digits = (
            f"{moment.year:04}",
            *(f"{n:02}" for n in (moment.month, moment.day, moment.hour, moment.minute)),
        )
        text = level.pattern
        for directive, value in zip(_DIRECTIVES, digits, strict=True):
            text = text.replace(directive, value)
        return text

    def without_fields(self, schema: Schema) -> Schema:
        """Return the STRUCT `schema` without the fields that are in the folders' names.

        Raises:
            DataError: no field would be left.
        """
        left = tuple(one for one in schema.fields if one.name not in self.fields)
        if not left:
            raise DataError(
                f"all columns ({', '.join(self.fields)}) are in partition.by, so files would have "
                "none: set partition.keep.columns = true"
            )
        return Schema(SchemaType.STRUCT, fields=left)


def _level(part: str) -> _Level:
    name, given, pattern = part.partition("=")
    if name.startswith(HIDDEN):
        raise ValueError(hidden_fault(name))
    if not given:
        return _Level(part)
    if not name or not _PATTERN.fullmatch(pattern) or "%" not in pattern:
        raise ValueError(
            f"{part}, expected the name of a field, or NAME=PATTERN for the record's time with a "
            f"pattern of {' '.join(_DIRECTIVES)}, letters, digits, - _ and ., such as day=%Y-%m-%d"
        )
    return _Level(name, pattern)


def hidden_fault(name: str) -> str:
    """Return a message why no file or folder of the sink can have a name that begins with `name`,
    which is that of a field or a topic."""
    return (
        f"{name} begins with {name[0]}, expected another first character: readers of the folder "
        "take such files and folders for hidden ones, and the records would seem lost. Rename it, "
        "or write to another kind of target"
    )


def escaped(text: str) -> str:
    """Return `text` escaped as in folder names of Hive and Spark. Source: Spark's
    ExternalCatalogUtils."""
    return "".join([f"%{ord(char):02X}" if char in _ESCAPED else char for char in text])


def _text(
    record: SinkRecord, schema: Schema | None, row: Mapping[str, Any], name: str
) -> str | None:
    if schema is not None and all(field.name != name for field in schema.fields):
        raise DataError(
            f"{at(record)} has no field {name}, expected one for partition.by; it has "
            f"{', '.join(field.name for field in schema.fields)}"
        )
    if schema is None and name not in row:
        raise DataError(
            f"{at(record)} has no field {name}, expected one for partition.by; it has "
            f"{', '.join(map(str, row)) or 'none'}"
        )
    value = row.get(name)
    if value is None:
        return None
    if schema is not None:
        _check_type(record, next(one.schema for one in schema.fields if one.name == name), name)
    elif not isinstance(value, (str, int)):
        raise DataError(
            f"{at(record)}: {name} is a {type(value).__name__}, expected text, a whole number or a "
            "boolean for partition.by"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not text or text == NULL_FOLDER or "\0" in text or not is_utf8(text):
        seen = json.dumps(text) if text else "empty"
        raise DataError(
            f"{at(record)}: {name} is {seen}, which as a folder would be read back as another "
            "value: set errors.tolerance = all with a dead letter queue, or change it by a "
            "transform"
        )
    return text


def _check_type(record: SinkRecord, schema: Schema, name: str) -> None:
    logical = logical_type(schema)
    if logical == DATE or (logical is None and schema.type in _PLAIN):
        return
    raise DataError(
        f"{at(record)}: {name} is of type {logical or schema.type}, expected a text, a whole "
        "number, a boolean or a Date for partition.by"
    )


def pin_text(by: Sequence[str], timezone: str, keeps: bool) -> str:
    """Return, as JSON, the settings that must not change for a folder, because its readers take it
    for one table."""
    return json.dumps({"by": list(by), "timezone": timezone, "keep.columns": keeps})


def json_fields(record: SinkRecord, keeps_text: bool) -> tuple[Mapping[str, Any], Schema | None]:
    """Return the fields of a value that becomes a line of JSON, and their STRUCT if it has one.

    Args:
        keeps_text: a text that is a JSON object is written unchanged. Without this it is refused,
            since fields would be taken out of it.

    Raises:
        DataError: the value has no fields, or is such a text.
    """
    value, schema = record.value, record.value_schema
    if schema is not None and schema.type is SchemaType.STRUCT:
        return value, schema
    if isinstance(value, dict):
        return value, None
    if isinstance(value, str):
        found = _json_of(value)
        if isinstance(found, dict):
            if keeps_text:
                return found, None
            raise DataError(
                f"{at(record)} is text of a JSON object, which would be changed: set "
                "partition.keep.columns = true, or use a converter that keeps types"
            )
    raise DataError(f"{at(record)} has no fields, expected an object for partition.by")


def json_names(record: SinkRecord) -> Iterable[str]:
    """Return the names of the members of the JSON line that a value becomes."""
    value, schema = record.value, record.value_schema
    if schema is not None and schema.type is SchemaType.STRUCT:
        return [field.name for field in schema.fields]
    found = _json_of(value) if isinstance(value, str) else value
    return list(map(str, found)) if isinstance(found, dict) else ()


def _json_of(text: str) -> Any:
    """Return the value of a JSON text, or None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def partition_faults(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the faults, by key, of ``partition.by`` and ``partition.timezone``."""
    parts = [part.strip() for part in config.get("partition.by", "").split(",") if part.strip()]
    try:
        PartitionBy(parts, config.get("partition.timezone", "UTC").strip())
    except ValueError as error:
        key = "partition.timezone" if str(error).startswith("time zone") else "partition.by"
        return {key: [str(error)]}
    return {}
