"""DirectorySink on a disk that is full at any step, or goes away within a batch. It reports that,
and loses and doubles nothing in any format."""

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.depth import first
from support.files.small_disk import FILLER, is_about_space, leave_free, small_file_system

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.output.manifest import ManifestError

ROW = s.struct({"n": s.INT64, "text": s.STRING, "half": s.INT64})
PLACE = ("t", 0)
PAGES = 16
"""A commit takes fewer, so that it is cut short after each number of pages that it writes."""
FORMATS = ("parquet", "csv", "jsonl", "arrow")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 8) as folder:
        yield folder


def task(folder: Path, format: str, by: str = "", by_group: int = 0) -> DirectorySinkTask:
    made = DirectorySinkTask()
    committed = {PLACE: by_group} if by_group else None
    made.context = FakeSinkContext(committed=committed, reports=False)
    config = {"name": "sink", "path": str(folder), "format": format, "partition.by": by}
    made.start({**config, "rotate.records": "2", "rotate.interval.ms": "600000"})
    made.open([PLACE])
    return made


def records(start: int, count: int) -> list[SinkRecord]:
    rows = [{"n": n, "text": "x" * 1500, "half": n % 2} for n in range(start, start + count)]
    return [SinkRecord("t", 0, row["n"], None, row, (), 0, None, ROW) for row in rows]  # type: ignore[arg-type]


def numbers(folder: Path, format: str) -> list[int]:
    found: list[int] = []
    for path in sorted(folder.rglob(f"*.{format}")):
        if "_headgate" in path.parts:
            continue
        if format == "parquet":
            found += pq.read_table(path, partitioning=None)["n"].to_pylist()
        elif format == "arrow":
            found += pa.ipc.open_file(path).read_all()["n"].to_pylist()
        elif format == "csv":
            found += [int(row["n"]) for row in csv.DictReader(path.open())]
        else:
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return sorted(found)


@pytest.mark.parametrize("by", first(1, ["", "half"]))
@pytest.mark.parametrize("format", FORMATS)
def test_files_that_a_full_disk_cuts_short_are_written_once_there_is_space(
    disk: Path, format: str, by: str
) -> None:
    out = disk / "out"
    task(out, format, by).put(records(0, 3))
    committed, refused = 3, 0
    for pages in range(PAGES):
        subject = task(out, format, by, committed)
        leave_free(disk, pages)
        try:
            subject.put(records(committed, 3))
        except Exception as error:
            assert is_about_space(error), error
            assert str(out) in str(error), f"it does not say which disk: {error!r}"
            refused += 1
        else:
            committed += 3
        (disk / FILLER).unlink()
        subject.stop()
        again = task(out, format, by, committed)  # publishes what was committed
        assert again.context.seeks in ({PLACE: committed}, {PLACE: committed + 3})  # type: ignore[attr-defined]
        committed = again.context.seeks[PLACE]  # type: ignore[attr-defined]
        again.put(records(committed, 3))
        committed += 3
        assert numbers(out, format) == list(range(committed)), pages
    assert refused > 1
    assert not list((out / "_headgate").rglob(".draft-*"))


@pytest.mark.parametrize("how", ["a batch", "the stop"])
def test_which_disk_is_full_is_told_of(disk: Path, how: str) -> None:
    subject = task(disk / "out", "parquet")
    columns = arrow_types.arrow_schema(ROW)
    rows = [{"n": n, "text": "x" * 1500, "half": 0} for n in range(2)]
    batch = SinkBatch("t", 0, 0, pa.RecordBatch.from_pylist(rows, columns), ROW)
    if how == "the stop":
        subject.put(records(0, 1))  # one more, and its file is committed
        subject.context.stopping = True  # type: ignore[misc]
    leave_free(disk, 0)
    with pytest.raises(OSError, match="No space left on device") as full:
        if how == "the stop":
            subject.pre_commit({PLACE: 1})
        else:
            subject.put_batch(batch)
    assert str(disk / "out") in str(full.value)


@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_goes_away_in_mid_batch_is_told_and_gone_on_when_it_is_back(
    disk: Path, tmp_path: Path, format: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    bind = ["mount", "--bind", str(disk), str(out)]
    subprocess.run(bind, check=True)
    try:
        subject = task(out, format)
        subject.put(records(0, 3))
        subject.put(records(3, 1))  # in a file that is not committed
        subprocess.run(["umount", "--lazy", str(out)], check=True)
        assert list(out.iterdir()) == []
        with pytest.raises(ManifestError, match="up to offset 3: put back what is gone"):
            subject.put(records(4, 2))
        assert list(out.iterdir()) == []
        with pytest.raises(ManifestError, match="put back what is gone"):
            task(out, format, by_group=3)
        subprocess.run(bind, check=True)
        again = task(out, format, by_group=3)
        assert again.context.seeks == {PLACE: 3}  # type: ignore[attr-defined]
        again.put(records(3, 6))
        assert numbers(out, format) == list(range(9))
    finally:
        subprocess.run(["umount", "--lazy", str(out)], check=False)
