"""Arrow and ORC files of a DirectorySource."""

import datetime
import decimal
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from support.data.every_type import every_type
from support.task.directory_runs import run, texts
from support.task.source_tasks import Offsets, reasons, values

from headgate.connector.api import SkippedRecord
from headgate_arrow import arrow_types, rows
from headgate_connectors.files.reader import ReadOptions
from headgate_connectors.formats.arrow_files import ArrowReader, OrcReader
from headgate_connectors.formats.readers import open_reader


def arrow_file(table: Any, rows_of_a_group: int = 1 << 20) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_of_a_group)
    return out.getvalue()


def orc_file(table: Any, rows_of_a_group: int = 1 << 20) -> bytes:
    """Stripes are cut by bytes; the smallest have 1,024 rows of these."""
    out = io.BytesIO()
    size = 64 << 20 if rows_of_a_group == 1 << 20 else 1
    orc.write_table(table, out, stripe_size=size, batch_size=min(rows_of_a_group, 1024))
    return out.getvalue()


FORMATS = {"arrow": arrow_file, "orc": orc_file}
both = pytest.mark.parametrize(("end", "made"), FORMATS.items(), ids=FORMATS)
Made = Callable[..., bytes]


def numbers(count: int) -> Any:
    return pa.table({"n": range(count)})


def read_by_batches(path: Path, end: str, limit: int) -> Any:
    reader: Any = open_reader(end, path, None, None, ReadOptions())
    parts = []
    while (found := reader.read_batch(limit)) is not None:
        parts.append(found.values)
    reader.close()
    return pa.Table.from_batches(parts), reader.schema


def test_every_type_of_an_arrow_file_is_kept(tmp_path: Path) -> None:
    table = pa.table(every_type())
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_file(table, 2))
    found, schema = read_by_batches(path, "arrow", 3)
    expected = rows.record_batch(table.cast(arrow_types.arrow_schema(schema)))
    assert found.schema == expected.schema
    for name in found.schema.names:
        # NaN is not equal to itself.
        assert "nan" in name or found[name].combine_chunks().equals(expected[name]), name
    assert schema == arrow_types.struct_schema(table.schema)


def test_types_of_an_orc_file(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 21, 3, 4, 5, 600, datetime.UTC)
    table = pa.table(
        {
            "day": [datetime.date(2026, 11, 21)],
            "at": [moment],
            "sum": [decimal.Decimal("12345678901234567890.10")],
            "raw": [b"\x00\xff"],
            "none": pa.array([None], pa.int64()),
            "small": pa.array([7], pa.int8()),
            "single": pa.array([1.5], pa.float32()),
            "deep": [{"list": [1, 2], "text": "é"}],
        }
    )
    (tmp_path / "a.orc").write_bytes(orc_file(table))
    (text,) = texts(run(tmp_path).rest())
    assert json.loads(text) == {
        "day": "2026-11-21",
        "at": "2026-11-21T03:04:05.000600+00:00",
        "sum": "12345678901234567890.10",
        "raw": "AP8=",
        "none": None,
        "small": 7,
        "single": 1.5,
        "deep": {"list": [1, 2], "text": "é"},
    }


@both
@pytest.mark.parametrize("stop", [0, 1, 1022, 1023, 1024, 2500, 2999])
def test_from_the_offset_of_any_row_the_rest_follows(
    tmp_path: Path, end: str, made: Made, stop: int
) -> None:
    (tmp_path / f"a.{end}").write_bytes(made(numbers(3_000), 500))
    whole = run(tmp_path, batch=400).rest()
    assert [record.value["n"] for record in whole] == list(range(3_000))  # type: ignore[union-attr]
    offsets = Offsets()
    offsets.commit(whole[stop])
    assert run(tmp_path, offsets, batch=700).rest() == whole[stop + 1 :]


def test_the_files_here_have_several_groups(tmp_path: Path) -> None:
    for end, made in FORMATS.items():
        path = tmp_path / f"a.{end}"
        path.write_bytes(made(numbers(3_000), 500))
        kind = ArrowReader if end == "arrow" else OrcReader
        reader = kind(path, None)
        assert reader._groups > 2
        reader.close()


@both
def test_a_file_without_its_footer_waits(tmp_path: Path, end: str, made: Made) -> None:
    content, path = made(numbers(2)), tmp_path / f"a.{end}"
    path.write_bytes(content[:-10])
    subject = run(tmp_path, until_idle=False)
    assert [subject.poll() for _ in range(3)] == [[], [], []]  # not idle
    kind = "ORC" if end == "orc" else "Arrow"
    assert subject.context.told == [f"a.{end} is awaited: it has no {kind} footer"]
    path.write_bytes(content)
    assert texts(subject.rest()) == ['{"n":0}', '{"n":1}']


@both
def test_a_replaced_file_is_read_anew(tmp_path: Path, end: str, made: Made) -> None:
    path = tmp_path / f"a.{end}"
    path.write_bytes(made(pa.table({"n": [1, 2]})))
    offsets = Offsets()
    offsets.commit(run(tmp_path, offsets).rest()[0])
    path.write_bytes(made(pa.table({"n": [3, 4]})))
    subject = run(tmp_path, offsets)
    assert texts(subject.rest()) == ['{"n":3}', '{"n":4}']
    assert "it was read up to row 1 and is another file now" in subject.context.told[0]


@both
def test_a_damaged_file_costs_no_row_before_the_damage_and_no_neighbour(
    tmp_path: Path, end: str, made: Made
) -> None:
    """Wherever it is. (What has no checksum can have another value; then nobody notices.)"""
    lists = pa.table({"n": range(3_000), "lists": [[n] for n in range(3_000)]})
    content = made(lists, 500)
    seen = set()
    for part in range(1, 20):
        folder, middle = tmp_path / str(part), len(content) * part // 20
        folder.mkdir()
        damaged = content[:middle] + b"\xff" * 200 + content[middle + 200 :]
        (folder / f"a.{end}").write_bytes(damaged)
        (folder / f"b.{end}").write_bytes(made(pa.table({"n": [-1_000_000]})))
        subject = run(folder, batch=100)
        items = subject.rest()
        found = [json.loads(text)["n"] for text in texts(items)]
        lost = sum(one.count for one in items if isinstance(one, SkippedRecord))
        assert -1_000_000 in found
        seen |= {lost} if lost else set()
        if not subject.context.quarantined:
            assert len(found) + lost == 3_001
            continue
        (told,) = subject.context.quarantined
        assert f"a.{end}: " in told
        if "rows from " in told:
            first = int(told.split("rows from ")[1].split()[0])
            seen.add(first)
            assert len(found) == first + 1 and "on cannot be read" in told
    assert max(seen) > 0


def test_offsets_of_an_arrow_file_that_point_out_of_it_set_it_aside(tmp_path: Path) -> None:
    """Without a look at them the process would read beyond its memory."""
    content = arrow_file(pa.table({"s": ["abcdefgh" * 100] * 3}))
    ends = b"".join((800 * n).to_bytes(4, "little") for n in range(1, 4))
    assert content.count(ends) == 1
    (tmp_path / "a.arrow").write_bytes(content.replace(ends, b"\xff\xff\xff\x7f" * 3))
    subject = run(tmp_path)
    assert subject.rest() == []
    assert "a.arrow: rows from 0 on cannot be read" in subject.context.quarantined[0]


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (pa.array([b"a", b"\xff", b"b"]), pa.string()),
        (pa.array([b"a", b"\xff", b"b"], pa.large_binary()), pa.large_string()),
        (pa.array([1, 86_400_000, 2], pa.int32()), pa.time32("ms")),
        (pa.array([1, -1, 2]), pa.time64("us")),
        (pa.array([0, 1, 86_400_000]), pa.date64()),
    ],
    ids=["string", "large_string", "time32", "time64", "date64"],
)
def test_a_value_that_its_type_has_not_costs_its_row(
    tmp_path: Path, numbers: Any, kind: Any
) -> None:
    table = pa.table({"n": range(3), "v": numbers.view(kind)})
    (tmp_path / "a.arrow").write_bytes(arrow_file(table))
    items = run(tmp_path).rest()
    assert [one["n"] for one in values(items)] == [0, 2]
    (told,) = reasons(items)
    assert f"a.arrow at row 1: column v of type {kind}: " in told


def test_a_moment_that_orc_is_not_read_with_is_no_other_moment(tmp_path: Path) -> None:
    subject = pa.table({"at": pa.array([datetime.datetime(1500, 1, 1)], pa.timestamp("us"))})
    (tmp_path / "a.orc").write_bytes(orc_file(subject))
    task = run(tmp_path)
    (told,) = reasons(task.rest())
    assert "a.orc at row 0: rows 0 to 1 cannot be read" in told
    assert "out of range for nanosecond" in told


@both
def test_compressed_files_are_left_alone(tmp_path: Path, end: str, made: Made) -> None:
    (tmp_path / f"a.{end}.gz").write_bytes(b"")
    subject = run(tmp_path)
    assert subject.rest() == []
    kind = "ORC" if end == "orc" else "Arrow"
    assert f"compressed {kind} files are left alone" in subject.context.told[0]


@both
def test_files_of_a_file_system_of_fsspec(end: str, made: Made) -> None:
    files = fsspec.filesystem("memory")
    files.pipe(f"/{end}-files/a.{end}", made(numbers(3)))
    assert texts(run(f"memory://{end}-files").rest()) == ['{"n":0}', '{"n":1}', '{"n":2}']
    files.rm(f"/{end}-files", recursive=True)
