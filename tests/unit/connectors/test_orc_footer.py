"""What the footer of an ORC file is read for: rows of stripes, and the calendar of its days."""

import datetime
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest
from support.task.directory_runs import by_batches, run
from support.task.source_tasks import Offsets, reasons, values

from headgate_connectors.formats.orc_footer import orc_footer

DAY = datetime.date


def orc_file(table: Any, **settings: Any) -> bytes:
    out = io.BytesIO()
    orc.write_table(table, out, **settings)
    return out.getvalue()


def stripes(column: Any) -> bytes:
    """Stripes of 1,024 rows."""
    return orc_file(pa.table({"n": column}), stripe_size=1, batch_size=1024)


def with_julian_days(content: bytes) -> bytes:
    """The file as Spark's and Hive's writer marks it: field 11 of its footer is 1."""
    length = content[-1] + 1
    data, postscript = content[:-length], content[-length:]
    assert postscript[0] == 0x08 and postscript[1] & 0x7F < 0x7E
    return data + b"\x58\x01" + bytes([0x08, postscript[1] + 2]) + postscript[2:]


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_rows_of_each_stripe_in_each_compression(codec: str) -> None:
    wide = pa.table({f"column_{n}": range(3000) for n in range(20)})
    content = orc_file(wide, compression=codec, stripe_size=1, batch_size=1000)
    found = orc_footer(pa, io.BytesIO(content))
    assert found is not None
    assert len(found.rows) == orc.ORCFile(pa.BufferReader(content)).nstripes
    assert sum(found.rows) == 3000
    assert not found.is_julian


def test_a_footer_that_is_not_understood() -> None:
    content = orc_file(pa.table({"n": [1]}))
    for odd in (b"", b"ORC", content[:-30], b"\xff" * 300, content[:-1] + b"\xff"):
        assert orc_footer(pa, io.BytesIO(odd)) is None


def test_a_stripe_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    moments = [datetime.datetime(2020, 1, 1)] * 3000
    moments[1500] = datetime.datetime(1500, 1, 1)
    (tmp_path / "a.orc").write_bytes(stripes(pa.array(moments, pa.timestamp("us"))))
    items = run(tmp_path).rest()
    (told,) = reasons(items)
    assert "a.orc at row 1024: rows 1024 to 2048 cannot be read: " in told
    assert "out of range for nanosecond" in told
    assert len(values(items)) == 3000 - 1024
    assert values(by_batches(tmp_path, **{"file.settle.ms": "0"})) == values(items)
    for done in (0, 1023, 1024, 1025, len(items) - 1):
        offsets = Offsets()
        offsets.commit(items[done])
        assert run(tmp_path, offsets).rest() == items[done + 1 :]


def test_days_of_the_julian_calendar_are_no_other_days(tmp_path: Path) -> None:
    days = pa.array([DAY(2020, 1, 1), DAY(1500, 1, 10), None, DAY(1582, 10, 15)])
    content = orc_file(pa.table({"day": days, "in": [[one] for one in days]}))
    (tmp_path / "a.orc").write_bytes(content)
    assert len(values(run(tmp_path).rest())) == 4
    (tmp_path / "a.orc").write_bytes(with_julian_days(content))
    items = run(tmp_path).rest()
    assert [one["day"] for one in values(items)] == [DAY(2020, 1, 1), None, DAY(1582, 10, 15)]
    (told,) = reasons(items)
    assert "a.orc at row 1: column day has a day before 15 October 1582, counted by the" in told
