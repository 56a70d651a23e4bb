"""Table sinks on a disk that is full at any step of a commit report it, and lose and double
nothing."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.files.small_disk import FILLER, is_about_space, leave_free, small_file_system
from support.task.iceberg_tables import PLACE, catalog, config_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord, SinkTask
from headgate.testing import FakeSinkContext
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.sink import TableError

pytestmark = pytest.mark.exhaustive

ROW = s.struct({"n": s.INT64, "text": s.STRING})
PAGES = 24
"""A commit takes fewer, so that it is cut short after each number of pages that it writes."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 8) as folder:
        yield folder
        gc.collect()  # catalogs close their database when they go


def started(made: SinkTask, config: dict[str, str]) -> SinkTask:
    made.context = FakeSinkContext(reports=False)
    made.start({"name": "sink", "rotate.interval.ms": "600000", "rotate.records": "1", **config})
    made.open([PLACE])
    return made


def delta(disk: Path) -> SinkTask:
    return started(DeltaSinkTask(), {"path": str(disk / "table")})


def rows_of_delta(disk: Path) -> list[int]:
    if not DeltaTable.is_deltatable(str(disk / "table")):
        return []
    return sorted(DeltaTable(disk / "table").to_pyarrow_table()["n"].to_pylist())


def iceberg(disk: Path) -> SinkTask:
    return started(IcebergSinkTask(), config_of(disk))


def rows_of_iceberg(disk: Path) -> list[int]:
    found = SqlCatalog("default", **catalog(disk))
    if not found.table_exists("shop.rows"):
        return []
    return sorted(found.load_table("shop.rows").scan().to_arrow()["n"].to_pylist())


def put(subject: SinkTask, number: int) -> None:
    value = {"n": number, "text": "x" * 100}
    subject.put([SinkRecord("t", 0, number, None, value, (), 0, None, ROW)])


@pytest.mark.parametrize(
    ("make", "rows"), [(delta, rows_of_delta), (iceberg, rows_of_iceberg)], ids=["Delta", "Iceberg"]
)
def test_a_commit_that_the_disk_cuts_short_at_any_page_is_no_commit(
    disk: Path, make: Callable[[Path], SinkTask], rows: Callable[[Path], list[int]]
) -> None:
    put(make(disk), 0)
    committed, refused = 1, 0
    for pages in range(PAGES):
        subject = make(disk)
        leave_free(disk, pages)
        try:
            put(subject, committed)
        except TableError as error:
            assert is_about_space(error), error
            refused += 1
        else:
            committed += 1
        (disk / FILLER).unlink()
        assert rows(disk) == list(range(committed)), pages
        again = make(disk)
        assert again.context.seeks == {PLACE: committed}  # type: ignore[attr-defined]
        put(again, committed)
        committed += 1
        assert rows(disk) == list(range(committed)), pages
    # It was cut short at some pages, and done with the most.
    assert refused > 1
    assert committed > PAGES + 1
