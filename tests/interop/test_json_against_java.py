"""`JsonConverter`'s bytes beside those of Connect 4.3.1, both ways, and the lines of a file."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.task.source_tasks import Run

from headgate.connector.api import DataError, SourceRecord
from headgate.connector.converters import make_converter
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


def given(schemas: str | None) -> dict[str, str]:
    return {} if schemas is None else {"schemas": schemas}


@pytest.mark.parametrize("schemas", [None, "true", "false"])
@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[repr(value) for value, _ in VALUES])
def test_what_one_writes_the_other_writes_and_reads(
    ask: Ask, value: Any, kind: str, schemas: str | None
) -> None:
    as_json = value.hex() if isinstance(value, bytes) else value
    theirs = ask("write", kind=kind, value=as_json, **given(schemas))
    ours = converter(schemas).from_connect("t", value)
    assert (ours and ours.hex()) == theirs, (ours, theirs and bytes.fromhex(theirs))
    if ours is None:
        return
    back = converter(schemas).to_connect("t", ours)
    read = ask("read", bytes=theirs, **given(schemas))
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


@pytest.mark.parametrize("schemas", [None, "false"])
def test_lines_of_a_file_are_the_same_bytes(ask: Ask, schemas: str | None, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    lines = [text.replace("\x00", "\x01") for text in TEXTS if "\n" not in text]
    path.write_bytes("\n".join([*lines, "café\r", "last", ""]).encode() + b"\xff\xc3 cut\n")
    theirs = ask("lines", file=str(path), **given(schemas))
    to_bytes = converter(schemas).from_connect
    ours = [
        [None if record.key is None else "a key", to_bytes("t", record.value).hex()]
        for record in Run(FileStreamSource, {"file": str(path), "topic": "t"}).rest()
        if isinstance(record, SourceRecord)
    ]
    assert ours == theirs
    assert len(ours) == len(lines) + 3
