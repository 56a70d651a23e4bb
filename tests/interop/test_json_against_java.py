"""`JsonConverter` writes and reads the bytes of Connect 4.3.1's, and the lines of a file."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.data.typed_values import typed_values
from support.depth import tries
from support.task.source_tasks import Run

from headgate.connector.api import DataError, SourceRecord
from headgate.connector.converters import make_converter
from headgate.connector.schema import Schema
from headgate_connectors.file_stream import FileStreamSource

Ask = Callable[..., Any]

TEXTS = ["", "plain", 'q"\\/\t\b\f', "\x00\x1f\x7f\x80", "é ключ \u2028\ufeff\uffff", "😀𝄞"]
VALUES = [
    *((text, "STRING") for text in TEXTS),
    (True, "BOOLEAN"),
    (False, "BOOLEAN"),
    *((number, "INT64") for number in (0, -7, 2**63 - 1, -(2**63))),
    *((number, "FLOAT64") for number in (0.0, -0.0, 1.5, 1e10, 5e-4, 1e7, 1e300, 0.001)),
    (b"", "BYTES"),
    (b"\x00\xff\x10", "BYTES"),
    ([], ""),
    ({}, ""),
    ([1, None, "a", [True]], ""),
    ({"é\x01": {"😀": 1.5, "n": None}, "a": [1, 2.25]}, ""),
    (None, ""),
]
"""With the schema that a Java connector gives such a value; "" for one without."""
FOREIGN = [
    (b'{"schema":{"type":"int32","optional":true},"payload":null}', None),
    (b'{"schema":{"type":"int16","optional":true,"default":3},"payload":null}', 3),
    (b'{"schema":{"type":"float","optional":false},"payload":1.5}', 1.5),
    (b'{"payload":{"a":[1,2]},"schema":null}', {"a": [1, 2]}),
    (b'{"schema":{"type":"array","items":{"type":"string"}},"payload":["a"]}', ["a"]),
    (b'{"schema":{"type":"string","optional":false},"payload":null}', DataError),
    (b'{"schema":null,"payload":1,"more":1}', DataError),
    (b'{"payload":1}', DataError),
    (b'"plain"', DataError),
    (b"null", DataError),
    (b"{", DataError),
]
"""Envelopes that others may have written, with what both read of them."""


JSON = "org.apache.kafka.connect.json.JsonConverter"
EXAMPLES = tries(150, 400)


def _envelope(schema: str, payload: str) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (schema.encode(), payload.encode())


DECIMAL = (
    '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}'
)
ODD = [
    _envelope(DECIMAL, '"BNI="'),
    _envelope(DECIMAL, "12.34"),
    _envelope(DECIMAL, '""'),
    _envelope('{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal"}', '"BNI="'),
    _envelope('{"type":"int32","name":"org.apache.kafka.connect.data.Date"}', '"x"'),
    _envelope('{"type":"int32","name":"org.apache.kafka.connect.data.Time"}', "86399999"),
    _envelope('{"type":"int32","name":"org.apache.kafka.connect.data.Time"}', "-1"),
    _envelope('{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp"}', "1.5"),
    _envelope('{"type":"array"}', "[]"),
    _envelope('{"type":"map","keys":{"type":"string"}}', "{}"),
    _envelope('{"type":"map","keys":{"type":"string"},"values":{"type":"int8"}}', "[]"),
    _envelope('{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}', "{}"),
    _envelope('{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}', "[[1]]"),
    _envelope('{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}', "[[1,2]]"),
    _envelope('{"type":"struct"}', "{}"),
    _envelope('{"type":"struct","fields":[{"type":"int8"}]}', "{}"),
    _envelope('{"type":"struct","fields":[{"field":"a","type":"int8"}]}', "{}"),
    _envelope('{"type":"struct","fields":[{"field":"a","type":"int8"}]}', '{"a":1,"b":2}'),
    _envelope('{"type":"struct","fields":[{"field":"a","type":"int8","default":3}]}', "{}"),
    _envelope('{"type":"int8","optional":true,"default":null}', "null"),
    _envelope('{"type":"int8","optional":false,"default":null}', "1"),
    _envelope('{"type":"int8","optional":"yes"}', "null"),
    _envelope('{"type":"int8","parameters":{"a":1}}', "1"),
    _envelope('{"type":"int8","parameters":{}}', "1"),
    _envelope('{"type":"int8","parameters":{"a":"b"},"doc":"d","version":3,"name":"n"}', "1"),
    _envelope('{"type":"int8","version":"3","name":4,"doc":null}', "1"),
    _envelope('{"type":"string","name":"org.apache.kafka.connect.data.Date"}', '"x"'),
    _envelope('{"type":"decimal"}', "1"),
    _envelope('{"type":"int8"}', "null"),
    _envelope("[]", "1"),
    _envelope("5", "1"),
]
"""Envelopes with odd schemas, or values that do not fit."""


@pytest.fixture(scope="module")
def ask(java_program: Callable[..., "subprocess.Popen[str]"]) -> Iterator[Ask]:
    process = java_program("JsonConverterBytes")
    assert process.stdin is not None and process.stdout is not None
    to, answers = process.stdin, process.stdout

    def asked(do: str, **question: Any) -> Any:
        to.write(json.dumps({"do": do, **question}) + "\n")
        to.flush()
        return json.loads(answers.readline())

    yield asked


def converter(schemas: str | None) -> Any:
    config = {} if schemas is None else {"schemas.enable": schemas}
    return make_converter("org.apache.kafka.connect.json.JsonConverter", config, is_key=False)


def chosen(schemas: str | None) -> dict[str, str]:
    return {} if schemas is None else {"schemas": schemas}


@pytest.mark.parametrize("schemas", [None, "true", "false"])
@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[repr(value) for value, _ in VALUES])
def test_what_one_writes_the_other_writes_and_reads(
    ask: Ask, value: Any, kind: str, schemas: str | None
) -> None:
    as_json = value.hex() if isinstance(value, bytes) else value
    theirs = ask("write", kind=kind, value=as_json, **chosen(schemas))
    ours = converter(schemas).from_connect("t", value)
    assert (ours and ours.hex()) == theirs, (ours, theirs and bytes.fromhex(theirs))
    if ours is None:
        return
    back = converter(schemas).to_connect("t", ours)
    read = ask("read", bytes=theirs, **chosen(schemas))
    if schemas != "false" and kind:
        assert read == {"kind": kind, "value": as_json}
        assert (back, type(back)) == (value, type(value))
    else:  # bytes come back as their base64: both have no schema
        assert read == {"kind": "", "value": back}


@pytest.mark.parametrize(("data", "wanted"), FOREIGN, ids=[str(data) for data, _ in FOREIGN])
def test_envelopes_of_others_are_read_alike(ask: Ask, data: bytes, wanted: Any) -> None:
    theirs = ask("read", bytes=data.hex())
    if wanted is DataError:
        assert "refused" in theirs
        with pytest.raises(DataError):
            converter(None).to_connect("t", data)
    else:
        assert theirs["value"] == wanted
        assert converter(None).to_connect("t", data) == wanted


CONFIGS: list[dict[str, str]] = [
    {},
    {"decimal.format": "NUMERIC"},
    {"replace.null.with.default": "false"},
    {"schemas.enable": "false"},
    {"schemas.enable": "false", "decimal.format": "numeric", "replace.null.with.default": "false"},
]


def ours_again(config: dict[str, str], data: bytes) -> list[str | None] | None:
    """Return the bytes that ours writes of the value that it reads, or None if it refuses."""
    writes = make_converter(JSON, config, is_key=False)
    try:
        schema, value = make_converter(JSON, {}, is_key=False).to_connect_data("t", data)
        written = writes.from_connect("t", value, schema)
    except DataError:
        return None
    return [None if written is None else written.hex()]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_typed_envelopes_are_read_and_written_alike(ask: Ask, config: dict[str, str]) -> None:
    """Envelopes of generated schemas and values, read by one converter, written by another."""

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(typed_values())
    def alike(typed: tuple[Schema, Any]) -> None:
        schema, value = typed
        data = make_converter(JSON, {}, is_key=False).from_connect("t", value, schema)
        theirs = ask("again", config=config, bytes=data.hex())
        theirs = None if isinstance(theirs, dict) else theirs
        ours = ours_again(config, data)
        assert ours == theirs, [
            None if one is None or one[0] is None else bytes.fromhex(one[0])
            for one in (ours, theirs)
        ]

    alike()


@pytest.mark.parametrize("data", ODD, ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_odd_envelopes_are_refused_or_written_alike(
    ask: Ask, config: dict[str, str], data: bytes
) -> None:
    theirs = ask("again", config=config, bytes=data.hex())
    theirs = None if isinstance(theirs, dict) else theirs
    assert ours_again(config, data) == theirs


@pytest.mark.parametrize(
    ("content", "enabled", "data"),
    [
        ('{"type":"int32","optional":true}', "true", b"5"),
        ('{"type":"int32","optional":true}', "true", b"null"),
        ('{"type":"struct","fields":[{"field":"a","type":"int8"}]}', "true", b'{"a":5}'),
        ('{"type":"struct","fields":[{"field":"a","type":"int8"}]}', "false", b'{"a":5}'),
        ("", "true", b'{"schema":null,"payload":{"a":5}}'),
    ],
)
def test_a_schema_of_all_values_is_used_alike(
    ask: Ask, content: str, enabled: str, data: bytes
) -> None:
    config = {"schema.content": content, "schemas.enable": enabled}
    theirs = ask("through", config=config, bytes=data.hex())
    reads = make_converter(JSON, config, is_key=False)
    schema, value = reads.to_connect_data("t", data)
    ours = make_converter(JSON, {}, is_key=False).from_connect("t", value, schema)
    assert [None if ours is None else ours.hex()] == theirs


@pytest.mark.parametrize("schemas", [None, "false"])
def test_lines_of_a_file_are_the_same_bytes(ask: Ask, schemas: str | None, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    lines = [text.replace("\x00", "\x01") for text in TEXTS if "\n" not in text]
    path.write_bytes("\n".join([*lines, "café\r", "last", ""]).encode() + b"\xff\xc3 cut\n")
    theirs = ask("lines", file=str(path), **chosen(schemas))
    to_bytes = converter(schemas).from_connect
    ours = [
        [None if record.key is None else "a key", to_bytes("t", record.value).hex()]
        for record in Run(FileStreamSource, {"file": str(path), "topic": "t"}).rest()
        if isinstance(record, SourceRecord)
    ]
    assert ours == theirs
    assert len(ours) == len(lines) + 3
