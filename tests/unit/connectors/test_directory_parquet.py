"""Parquet files of a DirectorySource."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.source_tasks import Offsets, Run, reasons, values

from headgate.connector.api import SkippedRecord
from headgate_connectors.directory import DirectorySource


def run(
    folder: Path, offsets: Offsets | None = None, batch: int = 2000, *, until_idle: bool = True
) -> Run:
    config = {
        "path": str(folder),
        "topic": "t",
        "file.settle.ms": "0",
        "batch.size": str(batch),
        "errors.tolerance": "all",
    }
    return Run(DirectorySource, config, offsets, until_idle=until_idle)


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


def test_types_that_json_has_not(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 21, 3, 4, 5, 600, datetime.UTC)
    write(
        tmp_path / "a.parquet",
        {
            "day": [datetime.date(2026, 11, 21)],
            "at": [moment],
            "nano": pa.array([1_000_000_001], pa.timestamp("ns")),
            "sum": [decimal.Decimal("12345678901234567890.10")],
            "raw": [b"\x00\xff"],
            "none": pa.array([None], pa.int64()),
            "nan": [float("nan")],
            "deep": [{"list": [1, 2], "text": "é"}],
            "took": [datetime.timedelta(seconds=1.5)],
        },
    )
    (text,) = values(run(tmp_path).rest())
    assert json.loads(text) == {
        "day": "2026-11-21",
        "at": "2026-11-21T03:04:05.000600+00:00",
        "nano": "1970-01-01 00:00:01.000000001",
        "sum": "12345678901234567890.10",
        "raw": "AP8=",
        "none": None,
        "nan": None,
        "deep": {"list": [1, 2], "text": "é"},
        "took": 1.5,
    }


@pytest.mark.parametrize("stop", range(10))
def test_from_the_offset_of_any_row_the_rest_follows(tmp_path: Path, stop: int) -> None:
    write(tmp_path / "a.parquet", {"n": list(range(10))}, row_group_size=3)
    whole = run(tmp_path, batch=4).rest()
    assert [json.loads(value)["n"] for value in values(whole)] == list(range(10))
    offsets = Offsets()
    offsets.commit(whole[stop])
    assert run(tmp_path, offsets, batch=2).rest() == whole[stop + 1 :]


def test_a_file_without_its_footer_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    subject = run(tmp_path, until_idle=False)
    assert [subject.poll() for _ in range(3)] == [[], [], []]  # not idle
    assert subject.context.told == ["a.parquet is awaited: it has no Parquet footer"]
    path.write_bytes(content)
    assert values(subject.rest()) == ['{"n":1}', '{"n":2}']


def test_a_file_without_its_footer_is_set_aside_when_nothing_more_comes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    path.write_bytes(path.read_bytes()[:-10])
    subject = run(tmp_path)
    assert subject.rest() == []
    assert subject.context.quarantined == [f"{path}: it has no Parquet footer"]


@pytest.mark.parametrize("values_now", [[3, 4], [3, 4, 5, 6]])
def test_a_replaced_file_is_read_anew(tmp_path: Path, values_now: list[int]) -> None:
    """Two files of one size whose footers end alike are told apart, too."""
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    offsets = Offsets()
    offsets.commit(run(tmp_path, offsets).rest()[0])
    write(path, {"n": values_now})
    subject = run(tmp_path, offsets)
    found = [json.loads(value)["n"] for value in values(subject.rest())]
    assert found == values_now
    assert "it was read up to row 1 and is another file now" in subject.context.told[0]


def test_a_corrupt_file_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\x00" * 20 + b"PAR1")
    (tmp_path / "b.parquet").write_bytes(b"not parquet at all, but long")
    write(tmp_path / "c.parquet", {"n": [1]})
    subject = run(tmp_path)
    assert values(subject.rest()) == ['{"n":1}']
    assert [reason.split(": ")[1] for reason in subject.context.quarantined] == [
        "its footer does not parse",
        "it does not begin as a Parquet file does (PAR1)",
    ]


def test_a_corrupt_row_group_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": list(range(9))}, row_group_size=3, compression="gzip", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes(content))
    records = run(tmp_path).rest()
    assert [json.loads(value)["n"] for value in values(records)] == [0, 1, 2, 6, 7, 8]
    (skipped,) = [record for record in records if isinstance(record, SkippedRecord)]
    assert "at row 3: rows 3 to 6 cannot be read" in skipped.reason
    assert skipped.count == 3


def test_a_bad_cell_costs_its_row_alone(tmp_path: Path) -> None:
    texts = [b"ok"] * 1000
    texts[500] = b"\xff\xfe"
    write(tmp_path / "a.parquet", {"v": pa.array(texts, pa.binary()).view(pa.string())})
    records = run(tmp_path).rest()
    assert len(values(records)) == 999
    (reason,) = reasons(records)
    assert "a.parquet at row 500: column v: 'utf-8' codec can't decode byte 0xff" in reason


def test_int96_keeps_years_and_nanoseconds_that_64_bits_of_them_do_not_hold(
    tmp_path: Path,
) -> None:
    moments = [
        datetime.datetime(1000, 1, 1),
        datetime.datetime(2024, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59),
        None,
    ]
    int96 = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    write(tmp_path / "years.parquet", {"at": pa.array(moments, pa.timestamp("us"))}, **int96)
    fine = pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns"))
    write(tmp_path / "fine.parquet", {"at": fine}, **int96)
    found = [json.loads(value)["at"] for value in values(run(tmp_path).rest())]
    assert found == [
        "2024-01-01 00:00:00.123456789",
        None,
        "1000-01-01T00:00:00",
        "2024-01-01T00:00:00",
        "9999-12-31T23:59:59",
        None,
    ]
