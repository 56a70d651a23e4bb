"""Our reading and writing equal what was recorded from Kafka Connect 4.3.1 (specs/java-json)."""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.java import hash as java_hash
from headgate.java.json import NotJsonError, dumps, parse
from headgate.java.json_reader import read
from headgate.topics import config_records as records
from headgate.topics import offsets
from headgate.topics.config_events import RecordRejected, SessionKeyChanged

TABLES = Path(__file__).parents[3] / "specs" / "java-json"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TABLES / name).read_text("utf-8").splitlines()]


def document(row: dict[str, Any]) -> bytes:
    pieces = row.get("repeated") or [[row["hex"], 1]]
    return b"".join(bytes.fromhex(piece) * count for piece, count in pieces)


READING = rows("reading.jsonl")
READING_IDS = [f"{index}-{row['case']}" for index, row in enumerate(READING)]


def tagged(value: Any) -> Any:
    """Return the value with floats in the form of the table."""
    if isinstance(value, float):
        return {"$double": struct.pack(">d", value).hex()}
    if isinstance(value, dict):
        return {name: tagged(item) for name, item in value.items()}
    if isinstance(value, list):
        return [tagged(item) for item in value]
    return value


@pytest.mark.parametrize("reader", [parse, read], ids=["parse", "exact-reader"])
@pytest.mark.parametrize("row", READING, ids=READING_IDS)
def test_reads_what_java_reads(row: dict[str, Any], reader: Any) -> None:
    try:
        value = reader(document(row))
    except NotJsonError:
        assert "refused" in row
        return
    assert "refused" not in row, f"Java says: {row['refused']}"
    if "reads" in row:
        # Compared as text: for Python 1 == 1.0 == True.
        assert json.dumps(tagged(value), sort_keys=True) == json.dumps(row["reads"], sort_keys=True)


@pytest.mark.parametrize("row", READING, ids=READING_IDS)
def test_a_faster_parser_changes_nothing(row: dict[str, Any]) -> None:
    data = document(row)
    if not row["case"].startswith("nested"):
        assert outcome(parse, data) == outcome(
            lambda data: records.read_value(data, orjson.loads), data
        )
    for key in (b"connector-a", b"commit-a", b"tasks-fencing-a", b"target-state-a", b"session-key"):
        assert records.decode(1, key, data, orjson.loads) == records.decode(1, key, data)


def outcome(reader: Callable[[bytes], Any], data: bytes) -> str:
    try:
        return json.dumps(tagged(reader(data)), sort_keys=True)
    except NotJsonError as error:
        return f"refused: {error}"


def test_the_depth_of_the_callers_stack_does_not_matter() -> None:
    """Python's parser gives up where the stack is nearly used up; the result must not."""
    data = b'{"a":' * 200 + b"1" + b"}" * 200

    def deeper(frames: int) -> Any:
        return deeper(frames - 1) if frames else parse(data)

    left = sys.getrecursionlimit() - len(_stack()) - 60
    assert deeper(left) == parse(data)


@pytest.mark.parametrize("fast", [None, orjson.loads])
def test_what_nobody_looks_at_is_nested_too_deep(fast: Any) -> None:
    """That holds whatever the limit of the parser is: orjson's is 1024, Python's is the rest of its
    stack."""
    value = b'{"properties":' + b"[" * 1010 + b"]" * 1010 + b',"properties":{}}'
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        event = records.decode(0, b"connector-a", value, fast)
    finally:
        sys.setrecursionlimit(before)
    assert isinstance(event, RecordRejected)
    assert not event.advances


def _stack() -> list[Any]:
    frame, frames = sys._getframe(), []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


@pytest.mark.parametrize("row", rows("writing.jsonl"), ids=lambda row: repr(row["input"])[:40])
def test_writes_what_java_writes(row: dict[str, Any]) -> None:
    if row["kind"] == "write":
        assert dumps({"k": row["input"]}).hex() == row["output"]
    else:
        assert offsets.encode_value({"k": float(row["input"])}).hex() == row["output"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "row", rows("parsing.jsonl"), ids=lambda row: f"{row['kind']}-{row['input']!r}"
)
def test_parses_keys_numbers_and_base64_as_java_does(row: dict[str, Any]) -> None:
    given, wanted = row["input"], row.get("output")
    match row["kind"]:
        case "utf8":
            event = records.decode(0, bytes.fromhex(given), b"{}")
            if isinstance(event, RecordRejected):
                assert event.key == wanted
            else:
                pytest.fail(f"{event} from {given}")
        case "base64":
            value = dumps({"key": given, "algorithm": "HmacSHA256", "creation-timestamp": 1})
            event = records.decode(0, b"session-key", value)
            assert (event.key.hex() if isinstance(event, SessionKeyChanged) else None) == wanted
        case "int":
            assert records.parse_java_int(given) == wanted
        case "taskkey":
            found = records.task_of_key(given[5:])
            assert (None if found is None else list(found)) == wanted
        case other:
            pytest.fail(other)


@pytest.mark.parametrize("row", rows("hash-order.jsonl"), ids=lambda row: str(row["names"])[:30])
def test_hash_map_order(row: dict[str, Any]) -> None:
    assert java_hash.in_map_order(row["names"]) == row["order"]
