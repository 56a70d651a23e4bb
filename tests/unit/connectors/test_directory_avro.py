"""Avro files of a DirectorySource."""

import datetime
import decimal
import io
import json
import zlib
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pyarrow as pa
import pytest
from support.task.directory_runs import run, texts
from support.task.source_tasks import Offsets, reasons

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.schema import SchemaType

SYNC = b"0123456789abcdef"
NUMBERS = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
DATED = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "day", "type": {"type": "int", "logicalType": "date"}}],
}


def avro(schema: Any, rows: list[Any], codec: str = "null", of_a_block: int = 1 << 20) -> bytes:
    """`of_a_block`: bytes after which a block ends."""
    out = io.BytesIO()
    fastavro.writer(
        *(out, schema, rows, codec), sync_interval=of_a_block, sync_marker=SYNC, validator=False
    )
    return out.getvalue()


def numbers(*values: int, of_a_block: int = 1) -> bytes:
    return avro(NUMBERS, [{"n": n} for n in values], of_a_block=of_a_block)


def read(records: list[SourceRecord | SkippedRecord]) -> list[int]:
    return [json.loads(text)["n"] for text in texts(records)]


def test_types_are_kept(tmp_path: Path) -> None:
    logical = [
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("sum", {"type": "bytes", "logicalType": "decimal", "precision": 22, "scale": 2}),
        ("raw", "bytes"),
        ("none", ["null", "long"]),
        ("single", "float"),
        ("tags", {"type": "array", "items": "string"}),
        ("map", {"type": "map", "values": "int"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ]
    schema = {
        "type": "record",
        "name": "org.example.Row",
        "fields": [{"name": name, "type": kind} for name, kind in logical],
    }
    row = {
        "day": datetime.date(2026, 11, 21),
        "at": datetime.datetime(2026, 11, 21, 3, 4, 5, 600, datetime.UTC),
        "sum": decimal.Decimal("12345678901234567890.10"),
        "raw": b"\x00\xff",
        "none": None,
        "single": 1.5,
        "tags": ["a", "b"],
        "map": {"k": 1},
        "kind": "B",
    }
    (tmp_path / "a.avro").write_bytes(avro(schema, [row]))
    (record,) = run(tmp_path).rest()
    assert isinstance(record, SourceRecord) and record.value_schema is not None
    assert record.value_schema.name == "org.example.Row"
    kinds = {field.name: field.schema.type for field in record.value_schema.fields}
    assert kinds["single"] is SchemaType.FLOAT32 and kinds["none"] is SchemaType.INT64
    assert record.value["sum"] == row["sum"] and record.value["day"] == row["day"]
    assert {**record.value, "at": 0} == {**row, "at": 0}
    assert json.loads(texts([record])[0])["at"] == "2026-11-21T03:04:05.000600+00:00"


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    rows = [{"n": n} for n in range(5_000)]
    (tmp_path / "a.avro").write_bytes(avro(NUMBERS, rows, codec, 1_000))
    assert read(run(tmp_path, batch=700).rest()) == list(range(5_000))


def _with_codec(codec: bytes, squeezed: bytes) -> bytes:
    """A file with one block of three rows."""
    plain = numbers(1, 2, 3, of_a_block=1 << 20)
    head = plain[: plain.index(SYNC) + len(SYNC)].replace(b"\x08null", _text(codec))
    return head + _long(3) + _long(len(squeezed)) + squeezed + SYNC


def _long(number: int) -> bytes:
    found, number = b"", number << 1
    while number > 0x7F:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_codecs_that_this_writer_has_not(tmp_path: Path, codec: str) -> None:
    rows = b"\x02\x04\x06"
    if codec == "snappy":
        squeezed = bytes(pa.Codec("snappy").compress(rows)) + zlib.crc32(rows).to_bytes(4)
    else:
        squeezed = bytes(pa.Codec("zstd").compress(rows))
    (tmp_path / "a.avro").write_bytes(_with_codec(codec.encode(), squeezed))
    assert read(run(tmp_path).rest()) == [1, 2, 3]


def test_a_codec_that_is_not_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(_with_codec(b"lzo", b"x"))
    subject = run(tmp_path)
    assert subject.rest() == []
    assert (
        "its codec 'lzo' is not read, expected one of null, deflate"
        in (subject.context.quarantined[0])
    )


@pytest.mark.parametrize("of_a_block", [1, 3, 100])
@pytest.mark.parametrize("stop", range(10))
def test_from_the_offset_of_any_row_the_rest_follows(
    tmp_path: Path, stop: int, of_a_block: int
) -> None:
    (tmp_path / "a.avro").write_bytes(numbers(*range(10), of_a_block=of_a_block))
    whole = run(tmp_path, batch=4).rest()
    assert read(whole) == list(range(10))
    offsets = Offsets()
    offsets.commit(whole[stop])
    assert run(tmp_path, offsets, batch=2).rest() == whole[stop + 1 :]


@pytest.mark.parametrize("committed", [1, 2, 4])
def test_a_file_that_has_grown_is_read_on(tmp_path: Path, committed: int) -> None:
    """Also where the last row that was committed is in the middle of its block."""
    path = tmp_path / "a.avro"
    path.write_bytes(numbers(1, 2, 3, 4, of_a_block=2))
    offsets = Offsets()
    offsets.commit(run(tmp_path, offsets).rest()[committed - 1])
    more = numbers(5, 6)
    with path.open("ab") as file:
        file.write(more[more.index(SYNC) + len(SYNC) :])
    assert read(run(tmp_path, offsets).rest()) == list(range(committed + 1, 7))


def test_a_block_that_is_still_written_is_awaited(tmp_path: Path) -> None:
    path, content = tmp_path / "a.avro", numbers(1, 2, 3)
    head = content.index(SYNC) + len(SYNC)
    subject = run(tmp_path, until_idle=False)
    found: list[int] = []
    for end in (2, head - 3, head, head + 1, head + 5, len(content) - 1, len(content)):
        path.write_bytes(content[:end])
        for _ in range(3):
            found += read(subject.poll() or [])
        if end < len(content):
            assert len(found) <= 2, "of whole blocks alone"
    for _ in range(20):
        found += read(subject.poll() or [])
    assert found == [1, 2, 3]
    assert not subject.context.quarantined


def test_a_last_block_that_stays_cut_sets_the_file_aside(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(numbers(1, 2, 3)[:-1])
    (tmp_path / "b.avro").write_bytes(numbers(4))
    subject = run(tmp_path)
    assert read(subject.rest()) == [1, 2, 4]
    assert "the last block is cut: it looks half written" in subject.context.quarantined[0]


@pytest.mark.parametrize("now", [[3, 4], [1, 3], [3]])
def test_a_replaced_file_is_read_anew(tmp_path: Path, now: list[int]) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(numbers(1, 2, of_a_block=100))
    offsets = Offsets()
    offsets.commit(run(tmp_path, offsets).rest()[1])
    path.write_bytes(numbers(*now, of_a_block=100))
    subject = run(tmp_path, offsets)
    assert read(subject.rest()) == now
    assert "it was read up to row 2 and is another file now" in subject.context.told[0]


def test_a_block_that_is_no_rows_costs_itself(tmp_path: Path) -> None:
    """Its neighbours are read: its end is known."""
    path, content = tmp_path / "a.avro", bytearray(numbers(1, 2, 3))
    (tmp_path / "b.avro").write_bytes(numbers(9))
    place = content.index(SYNC + b"\x02\x02\x04" + SYNC) + len(SYNC) + 2
    content[place] = 0x80  # a number that does not end
    path.write_bytes(content)
    found = run(tmp_path).rest()
    assert read(found) == [1, 3, 9]
    assert "rows 1 to 2 cannot be read: its bytes are no Avro of their schema" in reasons(found)[0]


def test_a_block_of_more_rows_than_it_says_is_no_block(tmp_path: Path) -> None:
    content = numbers(1, 2, 3, of_a_block=100)
    assert content.count(b"\x06\x06\x02\x04\x06") == 1
    (tmp_path / "a.avro").write_bytes(content.replace(b"\x06\x06\x02", b"\x04\x06\x02"))
    found = run(tmp_path).rest()
    assert read(found) == []
    assert "rows 0 to 2 cannot be read: 1 bytes are left behind" in reasons(found)[0]


def test_a_block_without_its_end_sets_the_file_aside_behind_the_rows_before_it(
    tmp_path: Path,
) -> None:
    content = numbers(1, 2, 3)
    second = content.index(b"\x02\x02\x04") + 3
    damaged = content[:second] + b"x" + content[second + 1 :]
    (tmp_path / "a.avro").write_bytes(damaged)
    subject = run(tmp_path)
    assert read(subject.rest()) == [1]
    assert "has no end where it should" in subject.context.quarantined[0]


def test_a_value_that_has_no_form_costs_its_row(tmp_path: Path) -> None:
    plain = avro(DATED, [{"day": 1}, {"day": 5_000_000}, {"day": 2}])
    (tmp_path / "a.avro").write_bytes(plain)
    found = run(tmp_path).rest()
    assert texts(found) == ['{"day":"1970-01-02"}', '{"day":"1970-01-03"}']
    assert len(reasons(found)) == 1 and "day" in reasons(found)[0]


def test_a_text_that_is_not_utf_8_costs_its_row(tmp_path: Path) -> None:
    content = avro("string", ["ab", "cd", "ef"])
    (tmp_path / "a.avro").write_bytes(content.replace(b"\x04cd", b"\x04c\xe9"))
    found = run(tmp_path).rest()
    assert texts(found) == ["ab", "ef"]
    assert "a.avro at row 1: a text is not UTF-8: " in reasons(found)[0]


def test_damage_anywhere_ends_no_task_and_costs_no_neighbour(tmp_path: Path) -> None:
    content = avro(NUMBERS, [{"n": n} for n in range(200)], "deflate", 40)
    for place in range(0, len(content), 7):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "a.avro").write_bytes(content[:place] + b"\xff" * 5 + content[place + 5 :])
        (folder / "b.avro").write_bytes(numbers(1_000))
        subject = run(folder)
        records = subject.rest()
        assert 1_000 in read(records)
        told = subject.context.quarantined or reasons(records)
        assert told or len(read(records)) == 201, f"rows are lost in silence: byte {place}"


def test_a_schema_that_connect_has_not_sets_the_file_aside(tmp_path: Path) -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}],
    }
    (tmp_path / "a.avro").write_bytes(avro(tree, [{"below": []}]))
    subject = run(tmp_path)
    assert subject.rest() == []
    assert "its schema cannot be read: " in subject.context.quarantined[0]
    assert "contains itself" in subject.context.quarantined[0]


def test_files_of_a_file_system_of_fsspec() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/avro-files/a.avro", numbers(1, 2))
    assert read(run("memory://avro-files").rest()) == [1, 2]
    files.rm("/avro-files", recursive=True)
