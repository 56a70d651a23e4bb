"""File sinks on a full disk report it. No line is torn, and nothing is lost, doubled or left
behind."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.files.small_disk import FILLER, is_about_space, leave_free, small_file_system

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.file_stream_sink import FileStreamSinkTask

PLACE = ("t", 0)
ROW = s.struct({"n": s.INT64, "text": s.STRING})
ROWS = 12
PAGES = 12
"""A batch and its commit take fewer."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 4) as folder:
        yield folder


def lines_task(disk: Path, committed: int) -> FileStreamSinkTask:
    made = FileStreamSinkTask()
    made.context = FakeSinkContext([PLACE], {PLACE: committed} if committed else None)
    made.start({"file": str(disk / "out.txt"), "tasks.max": "1"})
    made.open([PLACE])
    return made


def test_lines_are_whole_or_not_there_and_go_on_once_there_is_space(disk: Path) -> None:
    subject = lines_task(disk, 0)
    written: list[str] = []
    refused = 0
    for pages in range(PAGES):
        texts = [f"{pages}.{number} {'x' * 1_000}" for number in range(ROWS)]
        first = len(written)
        batch = [SinkRecord("t", 0, first + n, None, one, (), 0) for n, one in enumerate(texts)]
        leave_free(disk, pages)
        try:
            subject.put(batch)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            assert str(disk / "out.txt") in str(error)
            assert (disk / "out.txt").read_text() == "".join(f"{one}\n" for one in written)
            refused += 1
            subject.stop()
            (disk / FILLER).unlink()
            subject = lines_task(disk, first)
            subject.put(batch)
        subject.flush()
        written += texts
        assert (disk / "out.txt").read_text() == "".join(f"{one}\n" for one in written)
    subject.stop()
    assert 1 < refused < PAGES


def row(n: int) -> SinkRecord:
    value = {"n": n, "text": f"{n} {'x' * 1_000}"}
    return SinkRecord("t", 0, n, None, value, (), 0, None, ROW)


def rows_task(disk: Path, format: str) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext([PLACE], reports=False)
    settings = {"format": format, "rotate.records": f"{ROWS}", "rotate.interval.ms": "600000"}
    made.start({"name": "sink", "path": str(disk / "out"), **settings})
    made.open([PLACE])
    return made


def numbers(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        return [json.loads(line)["n"] for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        return list(pa.csv.read_csv(path)["n"].to_pylist())
    if path.suffix == ".arrow":
        return list(pa.ipc.open_file(path.read_bytes()).read_all()["n"].to_pylist())
    return list(pq.read_table(path)["n"].to_pylist())


def published(disk: Path, format: str) -> list[int]:
    return [n for path in sorted((disk / "out").glob(f"*.{format}")) for n in numbers(path)]


def drafts(disk: Path) -> list[str]:
    return [path.name for path in (disk / "out").rglob(".draft-*")]


def staged(disk: Path) -> list[Path]:
    return list((disk / "out/_headgate/staging").iterdir())


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "jsonl"])
def test_files_are_committed_whole_or_not_and_what_was_begun_gives_its_space_back(
    disk: Path, format: str
) -> None:
    subject = rows_task(disk, format)
    committed = refused = 0

    def put() -> None:
        for start in range(committed, committed + ROWS, 4):
            subject.put([row(n) for n in range(start, start + 4)])

    put()  # the folder has what is there but once
    committed += ROWS
    for pages in range(PAGES):
        leave_free(disk, pages)
        try:
            put()
        except OSError as error:
            assert is_about_space(error), error
            refused += 1
            subject.stop()
            assert drafts(disk) == [], pages
            assert published(disk, format) == list(range(committed)), pages
            # A whole file stays, as its entry may be there. Of all else nothing is left.
            batch = list(range(committed, committed + ROWS))
            assert all(numbers(path) == batch for path in staged(disk)), pages
            (disk / FILLER).unlink()
            subject = rows_task(disk, format)
            assert subject.context.seeks == {PLACE: committed}  # type: ignore[attr-defined]
            put()
        committed += ROWS
        assert published(disk, format) == list(range(committed)), pages
    subject.stop()
    assert 1 < refused < PAGES
    rows_task(disk, format).stop()
    assert staged(disk) == []
