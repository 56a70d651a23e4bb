"""Connect's records in the form that the program Transforms of tests/java reads and writes, and our
transforms' results in the same form."""

import datetime
import decimal
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from headgate.connector.api import DataError, SinkRecord, SourceRecord
from headgate.connector.config import ConfigError
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.transforms import PREDICATES, TRANSFORMS
from headgate.connector.transforms.times import ms_of

Record: TypeAlias = SourceRecord | SinkRecord
PACKAGE: Final = "org.apache.kafka.connect.transforms."


class JavaTransforms:
    """Java's transforms, in `process`. Threads must not share it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def answer(
        self, name: str, config: Mapping[str, str], records: Sequence[Record]
    ) -> dict[str, Any]:
        """Return Java's answer to a question that Transforms.java describes. `name` is a simple
        class name."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        package = PACKAGE + "predicates." * (name in PREDICATES)
        question = {
            "type": package + name,
            "config": dict(config),
            "records": [record_to_java(record) for record in records],
        }
        to.write(json.dumps(question, ensure_ascii=True) + "\n")
        to.flush()
        line = answers.readline()
        assert line, f"Java ended with {self._process.wait()} at {name} {config}"
        found: dict[str, Any] = json.loads(line)
        return found


def our_answer(name: str, config: Mapping[str, str], records: Sequence[Record]) -> dict[str, Any]:
    """Return the answer of our transform, as `JavaTransforms.answer` does. It does not name the
    class of an error."""
    plugin: Any = (PREDICATES if name in PREDICATES else TRANSFORMS)[name]()
    try:
        plugin.configure(config)
    except ConfigError as error:
        return {"refused": str(error)}
    answers: list[dict[str, Any]] = []
    for record in records:
        before = record_to_java(record)
        try:
            if name in PREDICATES:
                answers.append({"holds": plugin.test(record)})
                continue
            result = plugin.apply(record)
            answers.append(
                {"dropped": True} if result is None else {"record": record_to_java(result)}
            )
        except DataError as error:
            answers.append({"error": str(error)})
        assert record_to_java(record) == before, f"{name} changed a record in place"
    return {"answers": answers}


# -- to Java --


def record_to_java(record: Record) -> dict[str, Any]:
    schemas = record.header_schemas or (None,) * len(record.headers)
    headers = zip(record.headers, schemas, strict=True)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset if isinstance(record, SinkRecord) else None,
        "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms,
        "key": value_to_java(record.key, record.key_schema),
        "keySchema": schema_to_java(record.key_schema),
        "value": value_to_java(record.value, record.value_schema),
        "valueSchema": schema_to_java(record.value_schema),
        "headers": [
            [key, schema_to_java(schema), value_to_java(value, schema)]
            for (key, value), schema in headers
        ],
    }


def schema_to_java(schema: Schema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    answer: dict[str, Any] = {
        "type": schema.type.upper(),
        "optional": schema.optional,
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters),
        "default": value_to_java(schema.default, schema),
    }
    if schema.type is SchemaType.MAP:
        answer["keys"] = schema_to_java(schema.key_schema)
    if schema.type in (SchemaType.MAP, SchemaType.ARRAY):
        answer["values"] = schema_to_java(schema.value_schema)
    if schema.type is SchemaType.STRUCT:
        answer["fields"] = [[field.name, schema_to_java(field.schema)] for field in schema.fields]
    return answer


def value_to_java(value: Any, schema: Schema | None) -> Any:
    """Return a value with its kind, so that JSON loses no type."""
    if value is None:
        return None
    if isinstance(value, (bool, str)):
        return ["boolean" if isinstance(value, bool) else "string", value]
    if isinstance(value, float):
        return ["float", repr(value).replace("inf", "Infinity").replace("nan", "NaN")]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, decimal.Decimal):
        return ["decimal", str(value)]
    if isinstance(value, (datetime.date, datetime.time)):
        return ["date", str(ms_of(value))]
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return ["list", [value_to_java(item, items) for item in value]]
    assert isinstance(value, dict)
    if schema is not None and schema.type is SchemaType.STRUCT:
        names = {field.name for field in schema.fields}
        assert value.keys() <= names, f"a struct of {sorted(names)} has {sorted(value)}"
        fields = [
            [field.name, value_to_java(value.get(field.name), field.schema)]
            for field in schema.fields
        ]
        return ["struct", fields]
    keys = None if schema is None else schema.key_schema
    items = None if schema is None else schema.value_schema
    pairs = [[value_to_java(key, keys), value_to_java(each, items)] for key, each in value.items()]
    return ["map", pairs]


# -- to compare --


def comparable(answer: Any) -> Any:
    """Return an answer without differences that mean nothing: the order of maps, how a number is
    written."""
    if isinstance(answer, dict):
        return {key: comparable(each) for key, each in answer.items()}
    if not isinstance(answer, list):
        return answer
    if len(answer) == 2:
        kind, held = answer
        if kind == "float":
            return ["float", repr(float(held))]
        if kind == "decimal":
            return ["decimal", str(decimal.Decimal(held).normalize())]
        if kind == "map":
            return ["map", sorted((comparable(pair) for pair in held), key=json.dumps)]
    return [comparable(each) for each in answer]
