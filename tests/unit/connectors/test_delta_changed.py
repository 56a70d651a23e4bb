"""Delta tables that another writer restores or replaces while a sink writes them."""

import datetime
import logging
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.tables import delta_table
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"n": s.INT64})
PLACE, OTHER = ("t", 0), ("t", 1)


def task(folder: Path, *places: tuple[str, int], **settings: Any) -> DeltaSinkTask:
    made = DeltaSinkTask()
    made.context = FakeSinkContext(reports=False)
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    path = str(folder / "table")
    made.start(
        {"name": "sink", "path": path, "rotate.interval.ms": "600000", "rotate.records": "1"}
        | given
    )
    made.open(places or [PLACE])
    return made


def put(subject: DeltaSinkTask, *numbers: int, partition: int = 0) -> None:
    """Each in a commit of its own: version n + 1 has rows up to n, version 0 is the creation."""
    for n in numbers:
        value = {"n": n + 1000 * partition}
        subject.put([SinkRecord("t", partition, n, None, value, (), 0, None, ROW)])


def table(folder: Path) -> DeltaTable:
    return DeltaTable(folder / "table")


def numbers(folder: Path) -> list[int]:
    return sorted(table(folder).to_pyarrow_table()["n"].to_pylist())


def add_theirs(folder: Path, n: int) -> None:
    write_deltalake(folder / "table", pa.table({"n": [n]}), mode="append")


@pytest.mark.parametrize("when", ["while the task runs", "while it does not", "and written since"])
@pytest.mark.parametrize("keys", [{}, {"write_mode": "upsert", "key_columns": "n"}])
def test_a_table_that_was_restored_is_told_and_nothing_passed_over(
    tmp_path: Path, when: str, keys: Any
) -> None:
    """The offsets are application transactions, which a RESTORE leaves as they are."""
    subject = task(tmp_path, **keys)
    put(subject, 0, 1, 2)
    table(tmp_path).restore(1)
    assert table(tmp_path).transaction_version("headgate-sink/t-0") == 3
    if when == "and written since":
        add_theirs(tmp_path, 100)
    before = numbers(tmp_path)
    told = r"was restored to version 1 by others in version 4: .* Restore it to version 3, or set"
    for _ in range(2):
        with pytest.raises(TableError, match=told):
            if when == "while it does not":
                task(tmp_path, **keys)
            else:
                put(subject, 3)
    with pytest.raises(TableError, match=told):
        task(tmp_path, **keys)
    assert numbers(tmp_path) == before


def test_it_goes_on_in_a_table_that_was_restored_to_where_it_was(tmp_path: Path) -> None:
    put(task(tmp_path), 0, 1)
    add_theirs(tmp_path, 100)
    table(tmp_path).restore(1)
    with pytest.raises(TableError, match="Restore it to version 3, or"):
        task(tmp_path)
    table(tmp_path).restore(3)
    subject = task(tmp_path)
    put(subject, 2)
    put(task(tmp_path), 3)
    assert numbers(tmp_path) == [0, 1, 2, 3, 100]


def test_it_goes_on_behind_the_rows_if_that_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(task(tmp_path), 0, 1)
    table(tmp_path).restore(1)
    with caplog.at_level(logging.WARNING, "headgate.connector"):
        put(task(tmp_path, on_missing_output="accept"), 2, 3)
    (told,) = caplog.messages
    assert "was restored to version 1 by others in version 3" in told and "accept" in told
    put(task(tmp_path), 4)
    assert numbers(tmp_path) == [0, 2, 3, 4]
    table(tmp_path).restore(2)  # now those are gone that came after
    with pytest.raises(TableError, match="was restored to version 2 by others in version 7"):
        task(tmp_path)


def test_a_restore_that_undoes_nothing_of_the_sink_costs_nothing(tmp_path: Path) -> None:
    subject = task(tmp_path)
    put(subject, 0, 1)
    add_theirs(tmp_path, 100)
    table(tmp_path).restore(2)
    put(subject, 2)
    put(task(tmp_path), 3)
    assert numbers(tmp_path) == [0, 1, 2, 3]


def between_commits() -> datetime.datetime:
    """Return a time in whose millisecond no commit was made: a RESTORE to a time undoes the commits
    of its millisecond."""
    time.sleep(0.002)
    found = datetime.datetime.now(datetime.UTC)
    time.sleep(0.002)
    return found


@pytest.mark.parametrize("text", [False, True])
def test_a_restore_to_a_time_counts_as_one_to_the_version_of_that_time(
    tmp_path: Path, text: bool
) -> None:
    put(task(tmp_path), 0)
    add_theirs(tmp_path, 100)
    at = between_commits()
    put(task(tmp_path), 1)
    table(tmp_path).restore(at.isoformat() if text else at)
    assert numbers(tmp_path) == [0, 100]
    with pytest.raises(TableError, match="was restored to version 2 by others in version 4"):
        task(tmp_path)
    table(tmp_path).restore(3)
    add_theirs(tmp_path, 101)
    at = between_commits()
    add_theirs(tmp_path, 102)
    table(tmp_path).restore(at)
    put(task(tmp_path), 2)
    assert numbers(tmp_path) == [0, 1, 2, 100, 101]


def test_a_table_that_was_replaced_is_told(tmp_path: Path) -> None:
    subject = task(tmp_path)
    put(subject, 0, 1)
    columns = table(tmp_path).to_pyarrow_table().schema
    DeltaTable.create(tmp_path / "table", columns, mode="overwrite")
    assert table(tmp_path).transaction_version("headgate-sink/t-0") == 2
    for tried in (lambda: put(subject, 2), lambda: task(tmp_path)):
        with pytest.raises(TableError, match="was restored or replaced by others in version 3"):
            tried()
    assert numbers(tmp_path) == []


def test_each_partition_is_told_of_its_own_rows(tmp_path: Path) -> None:
    """A partition without new rows keeps up with the others, so that little of the log is read."""
    one, other = task(tmp_path, PLACE), task(tmp_path, OTHER)
    put(one, 0)
    put(other, 0, partition=1)
    table(tmp_path).restore(1)
    put(one, 1)
    put(task(tmp_path, PLACE), 2)
    with pytest.raises(TableError, match="was restored to version 1 by others in version 3"):
        put(other, 1, partition=1)
    with pytest.raises(TableError, match="was restored to version 1 by others in version 3"):
        task(tmp_path, PLACE, OTHER)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_partition_without_new_rows_keeps_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_table, "_BEHIND", 3)
    subject = task(tmp_path, PLACE, OTHER)
    put(subject, 0, partition=1)
    put(subject, *range(10))
    anchor = table(tmp_path).transaction_version("headgate-sink/t-1/version")
    assert anchor is not None and 7 <= anchor <= 10
    table(tmp_path).restore(0)
    with pytest.raises(TableError, match="was restored to version 0 by others in version 12"):
        task(tmp_path, OTHER)
    table(tmp_path).restore(11)
    put(task(tmp_path, OTHER), 1, partition=1)
    assert numbers(tmp_path) == [*range(10), 1000, 1001]


def test_a_log_whose_beginning_was_cleaned_up_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    put(task(tmp_path), 0, 1, 2)
    table(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    put(task(tmp_path), 3)
    table(tmp_path).optimize.compact()
    put(task(tmp_path), 4)
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]
