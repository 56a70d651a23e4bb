"""Another writer rolls an Iceberg table back, or renames its columns, while a sink writes it."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import catalog, iceberg_task

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"n": s.INT64, "name": s.STRING})


def task(folder: Path, **settings: Any) -> IcebergSinkTask:
    """A task that commits each record."""
    return iceberg_task(folder, rotate_records=1, **settings)


def row(number: int) -> SinkRecord:
    value = {"n": number, "name": f"x{number}"}
    return SinkRecord("t", 0, number, None, value, (), 0, None, ROW)


def put(subject: IcebergSinkTask, *numbers: int) -> None:
    for number in numbers:
        subject.put([row(number)])


def table(folder: Path) -> Any:
    return SqlCatalog("default", **catalog(folder)).load_table("shop.rows")


def numbers(folder: Path) -> list[int]:
    return sorted(table(folder).scan().to_arrow()["n"].to_pylist())


def roll_back(folder: Path, index: int) -> int:
    """Set the table to its snapshot `index`; the id of the one that it had."""
    found = table(folder)
    last: int = found.metadata.current_snapshot_id
    found.manage_snapshots().rollback_to_snapshot(found.history()[index].snapshot_id).commit()
    return last


@pytest.mark.parametrize("when", ["while the task runs", "while it does not", "and written since"])
def test_a_table_that_was_rolled_back_is_told_and_nothing_passed_over(
    tmp_path: Path, when: str
) -> None:
    """The offsets are properties, which a rollback leaves as they are."""
    subject = task(tmp_path)
    put(subject, 0, 1, 2)
    last = roll_back(tmp_path, 0)
    if when == "and written since":
        table(tmp_path).append(pa.table({"n": [100], "name": ["theirs"]}))
    before = numbers(tmp_path)
    with pytest.raises(TableError, match=rf"rolled back by others: .* up to snapshot {last} "):
        if when == "while it does not":
            task(tmp_path)
        else:
            put(subject, 3)
    assert numbers(tmp_path) == before


def test_it_goes_on_in_a_table_that_was_set_to_its_snapshot_again(tmp_path: Path) -> None:
    put(task(tmp_path), 0, 1)
    last = roll_back(tmp_path, 0)
    table(tmp_path).manage_snapshots().set_current_snapshot(snapshot_id=last).commit()
    put(task(tmp_path), 2)
    assert numbers(tmp_path) == [0, 1, 2]


def test_it_goes_on_behind_the_rows_if_that_is_accepted(tmp_path: Path) -> None:
    put(task(tmp_path), 0, 1)
    roll_back(tmp_path, 0)
    put(task(tmp_path, on_missing_output="accept"), 2)
    put(task(tmp_path), 3)
    assert numbers(tmp_path) == [0, 2, 3]


def test_commits_of_others_and_expired_snapshots_are_no_rollback(tmp_path: Path) -> None:
    put(task(tmp_path), 0, 1)
    table(tmp_path).append(pa.table({"n": [100], "name": ["theirs"]}))
    put(task(tmp_path), 2)
    table(tmp_path).append(pa.table({"n": [101], "name": ["theirs"]}))
    soon = datetime.datetime.now() + datetime.timedelta(days=1)
    table(tmp_path).maintenance.expire_snapshots().older_than(soon).commit()
    assert len(table(tmp_path).snapshots()) == 1
    put(task(tmp_path), 3)
    assert numbers(tmp_path) == [0, 1, 2, 3, 100, 101]


def test_a_commit_without_rows_moves_the_offsets_and_is_no_rollback(tmp_path: Path) -> None:
    settings = {"write_mode": "upsert", "key_columns": "n"}
    put(task(tmp_path, **settings), 0)
    gone = SinkRecord("t", 0, 1, {"n": 7}, None, (), 0, s.struct({"n": s.INT64}), None)
    task(tmp_path, **settings).put([gone])
    put(task(tmp_path, **settings), 2)
    assert numbers(tmp_path) == [0, 2]


@pytest.mark.parametrize("evolution", ["none", "add_columns"])
@pytest.mark.parametrize("running", [True, False])
def test_a_column_that_was_renamed_is_told_and_not_made_anew(
    tmp_path: Path, evolution: str, running: bool
) -> None:
    settings = {"schema_evolution": evolution}
    subject = task(tmp_path, **settings)
    put(subject, 0)
    with table(tmp_path).update_schema() as change:
        change.rename_column("name", "title")
    with pytest.raises(TableError, match=r"column name was renamed to title in table shop\.rows"):
        put(subject if running else task(tmp_path, **settings), 1)
    assert table(tmp_path).schema().as_arrow().names == ["n", "title"]
    with table(tmp_path).update_schema() as change:
        change.rename_column("title", "name")
    put(task(tmp_path, **settings), 1)
    assert numbers(tmp_path) == [0, 1]


def test_a_column_that_has_the_name_of_one_that_was_renamed_is_written(tmp_path: Path) -> None:
    put(task(tmp_path), 0)
    with table(tmp_path).update_schema() as change:
        change.rename_column("name", "title")
    with table(tmp_path).update_schema() as change:
        change.add_column("name", table(tmp_path).schema().find_field("title").field_type)
    put(task(tmp_path), 1)
    found = table(tmp_path).scan().to_arrow().sort_by("n").to_pylist()
    assert found == [
        {"n": 0, "title": "x0", "name": None},
        {"n": 1, "title": None, "name": "x1"},
    ]
