"""A catalog that does not answer for a while costs a sink and a source of Iceberg time, and no row.

The catalog is a file of SQLite that another process holds.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError
from support.task.iceberg_tables import PLACE, catalog, config_of
from support.task.table_sources import drain, tasks_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.iceberg_connection import CatalogAwayError

OTHER = ("t", 1)
ROW = s.struct({"n": s.INT64})


def record(offset: int, n: int | None = None, place: tuple[str, int] = PLACE) -> SinkRecord:
    value = {"n": offset if n is None else n}
    return SinkRecord(place[0], place[1], offset, None, value, (), 0, None, ROW)


def rows(*numbers: int) -> list[SinkRecord]:
    return [record(n) for n in numbers]


def config(folder: Path, **settings: Any) -> dict[str, str]:
    """A connector config whose catalog waits a tenth of a second for the file."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    uri = f"sqlite:///{folder}/catalog.db?timeout=0.1"
    return {**config_of(folder), "rotate.interval.ms": "600000", "catalog.uri": uri, **given}


def opened(folder: Path, *places: tuple[str, int], **settings: Any) -> IcebergSinkTask:
    made = IcebergSinkTask()
    made.context = FakeSinkContext(reports=False)
    made.start(config(folder, **settings))
    made.open(places or [PLACE])
    return made


def seeks(subject: IcebergSinkTask) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = subject.context.seeks  # type: ignore[attr-defined]
    return found


def numbers(folder: Path) -> list[int]:
    table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows")
    return sorted(table.scan().to_arrow()["n"].to_pylist())


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else reads or writes the catalog's file."""
    other = sqlite3.connect(folder / "catalog.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.close()


def test_a_batch_is_tried_again_until_the_catalog_answers(tmp_path: Path) -> None:
    subject = opened(tmp_path, rotate_records=1)
    subject.put(rows(0))
    text = r"shop\.rows cannot be looked at, which is tried again: catalog default \(sql at sqlite:"
    with held(tmp_path):
        for _ in range(2):
            with pytest.raises(CatalogAwayError, match=text):
                subject.put(rows(1))
    subject.put(rows(1))
    assert numbers(tmp_path) == [0, 1]


def test_a_sink_that_opens_meanwhile_goes_on_where_the_table_ends(tmp_path: Path) -> None:
    opened(tmp_path, rotate_records=2).put(rows(0, 1))
    with held(tmp_path):
        subject = opened(tmp_path, rotate_records=1)
        assert subject.context.timeout_ms == 1_000  # type: ignore[attr-defined]
        (told,) = subject.context.logged  # type: ignore[attr-defined]
        assert "is tried again" in told
        with pytest.raises(CatalogAwayError):
            subject.put(rows(1))  # the group was at 1
    assert subject.pre_commit({PLACE: 1}) == {}
    subject.put(rows(1))
    assert seeks(subject) == {PLACE: 2}
    assert subject.pre_commit({PLACE: 2}) == {PLACE: 2}
    subject.put(rows(2))
    assert numbers(tmp_path) == [0, 1, 2]


def batch(start: int, end: int) -> SinkBatch:
    values = pa.RecordBatch.from_pydict({"n": pa.array(range(start, end), pa.int64())})
    return SinkBatch("t", 0, start, values, ROW)


def test_a_batch_at_hand_when_the_catalog_is_back_is_delivered_anew(tmp_path: Path) -> None:
    """Otherwise the records between the end of the table and the batch would be left out."""
    opened(tmp_path, rotate_records=2).put(rows(0, 1))
    with held(tmp_path):
        subject = opened(tmp_path, rotate_records=1)
        with pytest.raises(CatalogAwayError):
            subject.put_batch(batch(3, 5))
    subject.put_batch(batch(3, 5))
    assert seeks(subject) == {PLACE: 2}
    subject.put_batch(batch(2, 5))
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_a_sink_that_opens_meanwhile_begins_an_empty_table(tmp_path: Path) -> None:
    with held(tmp_path):
        subject = opened(tmp_path, rotate_records=2)
        with pytest.raises(CatalogAwayError):
            subject.put(rows(0))
    subject.put(rows(0))
    subject.put(rows(1))
    assert seeks(subject) == {}
    assert numbers(tmp_path) == [0, 1]


def test_of_two_partitions_each_goes_on_where_the_table_has_it(tmp_path: Path) -> None:
    opened(tmp_path, rotate_records=2).put(rows(0, 1))
    given = [record(0), record(1), record(2), record(0, 10, OTHER)]
    with held(tmp_path):
        subject = opened(tmp_path, PLACE, OTHER, rotate_records=2)
        with pytest.raises(CatalogAwayError):
            subject.put(given)
    subject.put(given)
    assert seeks(subject) == {PLACE: 2}
    subject.put([record(2), record(1, 11, OTHER)])
    assert numbers(tmp_path) == [0, 1, 2, 10, 11]


def test_a_partition_that_is_taken_away_meanwhile_is_not_opened(tmp_path: Path) -> None:
    with held(tmp_path):
        subject = opened(tmp_path)
        subject.close([PLACE])
        subject.put([])


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = opened(tmp_path, rotate_records=1)
    subject.put(rows(0))
    commit = Table._do_commit

    def answer_lost(self: Any, *given: Any, **named: Any) -> None:
        commit(self, *given, **named)
        monkeypatch.setattr(Table, "_do_commit", commit)
        lost = Exception("server closed the connection unexpectedly")
        raise OperationalError("COMMIT", None, lost)

    monkeypatch.setattr(Table, "_do_commit", answer_lost)
    with pytest.raises(CatalogAwayError, match="closed the connection"):
        subject.put(rows(1))
    subject.put(rows(1))
    assert seeks(subject) == {PLACE: 2}
    assert numbers(tmp_path) == [0, 1]


def test_a_source_goes_on_once_the_catalog_answers(tmp_path: Path) -> None:
    sink = opened(tmp_path, rotate_records=1)
    sink.put(rows(0))
    (subject,) = tasks_of(IcebergSource, config(tmp_path, topic="t"))
    read = drain(subject)
    with held(tmp_path):
        for _ in range(2):
            with pytest.raises(CatalogAwayError):
                subject.poll()
    sink.put(rows(1))
    assert drain(subject, read).column("n") == [0, 1]
    subject.stop()


def test_a_refused_batch_is_read_again_from_its_first_record(tmp_path: Path) -> None:
    """The table has nothing yet of one of its partitions, so that the table cannot say from where
    on."""
    late = opened(tmp_path, PLACE, OTHER, rotate_records=3)
    late.put([record(0), record(5, 15, OTHER)])
    opened(tmp_path, rotate_records=2).put(rows(0, 1))
    late.put(rows(1))
    assert seeks(late) == {PLACE: 2, OTHER: 5}
    late.put([record(2), record(5, 15, OTHER), record(6, 16, OTHER)])
    assert numbers(tmp_path) == [0, 1, 2, 15, 16]
