"""The task of IcebergSource, driven by hand: snapshots, types, offsets, and refusals by name."""

import datetime
import os
import uuid
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import snapshot as snapshots_made
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, UUIDType
from support.task.iceberg_tables import catalog, config_of
from support.task.table_sources import Offsets, Read, drain, tasks_of

from headgate.connector.api import SourceTask
from headgate.connector.config import ConfigError
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.iceberg_connection import CatalogConnection
from headgate_connectors.tables.iceberg_snapshots import IcebergSteps, _Place
from headgate_connectors.tables.iceberg_state import files_of
from headgate_connectors.tables.source import Share, TableSourceError

NOWHERE = CatalogConnection({}, TableSourceError)
NESTED = pa.struct([("q", pa.int64()), ("r", pa.list_(pa.string()))])
EVERY: Any = pa.table(
    {
        "n": pa.array([1, 2, 3], pa.int64()),
        "i32": pa.array([-1, 1, None], pa.int32()),
        "f32": pa.array([0.5, float("inf"), None], pa.float32()),
        "f64": pa.array([0.1, -0.0, None], pa.float64()),
        "ok": pa.array([True, False, None]),
        "text": pa.array(["", "ä", None]),
        "raw": pa.array([b"", b"\x00\xff", None]),
        "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
        "time": pa.array([datetime.time(1), datetime.time(23, 59, 59, 999_999), None]),
        "at": pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
        "local": pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us")),
        "price": pa.array([Decimal("-1.20"), Decimal("9.99"), None], pa.decimal128(38, 2)),
        "many": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "inner": pa.array([{"q": 1, "r": ["x"]}, {"q": None, "r": None}, None], NESTED),
        "map": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
    }
)


def config(folder: Path, **settings: Any) -> dict[str, str]:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return {**config_of(folder), "topic": "t", **given}


def task(folder: Path, offsets: Offsets = (), **settings: Any) -> SourceTask:
    (made,) = tasks_of(IcebergSource, config(folder, **settings), offsets)
    return made


def lake(folder: Path) -> SqlCatalog:
    return SqlCatalog("default", **catalog(folder))


def made(folder: Path, columns: Any, **more: Any) -> Any:
    found = lake(folder)
    found.create_namespace_if_not_exists("shop")
    return found.create_table("shop.rows", schema=columns, **more)


def table(folder: Path) -> Any:
    return lake(folder).load_table("shop.rows")


def write(folder: Path, *numbers: int) -> int:
    """Write one snapshot with these rows, and return its id."""
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    found = lake(folder)
    if not found.table_exists("shop.rows"):
        made(folder, rows.schema)
    subject = found.load_table("shop.rows")
    subject.append(rows)
    snapshot: int = subject.metadata.current_snapshot_id
    return snapshot


def test_the_whole_table_and_then_what_each_snapshot_adds(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    first = write(tmp_path, 3)
    subject = task(tmp_path)
    read = drain(subject)
    assert read.column("n") == [1, 2, 3]
    write(tmp_path, 4)
    last = write(tmp_path, 5, 6)
    assert drain(subject, read).column("n") == [1, 2, 3, 4, 5, 6]
    assert subject.poll() is None
    ((partition, offset),) = read.committed
    assert partition == {"table": "shop.rows", "share": 0, "of": 1}
    assert (offset["after"], offset["begin"]) == (last, f"whole {first}")
    assert offset["id"] == str(table(tmp_path).metadata.table_uuid)
    write(tmp_path, 7)
    assert drain(task(tmp_path, read.committed)).column("n") == [7]


def test_it_begins_where_starting_snapshot_says(tmp_path: Path) -> None:
    ids = [write(tmp_path, number) for number in (1, 2, 3)]
    for starting, rows in (("latest", []), (ids[0], [1, 2, 3]), (ids[1], [2, 3])):
        subject = task(tmp_path, starting_snapshot=starting)
        read = drain(subject)
        assert read.column("n") == rows
        assert read.committed[0][1]["after"] == table(tmp_path).metadata.current_snapshot_id
    with pytest.raises(TableSourceError, match=r"has no snapshot 77, from which on .* latest"):
        drain(task(tmp_path, starting_snapshot=77))


def test_it_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    write(tmp_path, *range(10))
    write(tmp_path, *range(10, 20))
    read = Read()
    subject = task(tmp_path, batch_rows=3)
    for _ in range(3):
        read.take(subject.poll())
    assert len(read.rows) == 9
    write(tmp_path, 20)
    drain(task(tmp_path, read.committed, batch_rows=4), read)
    assert read.column("n") == list(range(21))


def test_columns_keep_their_types(tmp_path: Path) -> None:
    made(tmp_path, EVERY.schema).append(EVERY)
    read = drain(task(tmp_path))
    found = read.table()
    assert found.schema.types == EVERY.schema.types
    assert found.equals(EVERY.cast(found.schema))
    table(tmp_path).append(EVERY)
    assert drain(task(tmp_path, read.committed)).table().equals(found)


def test_uuids_are_bytes(tmp_path: Path) -> None:
    subject = made(tmp_path, Schema(NestedField(1, "u", UUIDType(), required=False)))
    value = uuid.uuid4()
    subject.append(pa.table({"u": pa.array([value.bytes, None], pa.uuid())}))
    read = drain(task(tmp_path))
    assert read.column("u") == [value.bytes, None]
    assert read.table().schema.field("u").type == pa.binary(16)


def test_partition_columns_are_in_the_rows(tmp_path: Path) -> None:
    columns = Schema(
        NestedField(1, "n", LongType(), required=False),
        NestedField(2, "p", StringType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    rows = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "p": ["a b/c", "x%20=é", None]})
    made(tmp_path, columns, partition_spec=spec).append(rows)
    found = drain(task(tmp_path)).rows
    assert sorted(found, key=lambda row: row["n"]) == rows.to_pylist()


def test_rows_carry_the_schema_of_their_snapshot(tmp_path: Path) -> None:
    first = write(tmp_path, 1)
    with table(tmp_path).update_schema() as change:
        change.add_column("late", StringType())
    table(tmp_path).append(pa.table({"n": [2], "late": ["x"]}))
    with table(tmp_path).update_schema() as change:
        change.rename_column("n", "number")
    table(tmp_path).append(pa.table({"number": [3], "late": ["y"]}))
    read = drain(task(tmp_path, starting_snapshot=first))
    assert read.rows == [{"n": 1}, {"n": 2, "late": "x"}, {"number": 3, "late": "y"}]
    whole = drain(task(tmp_path)).rows
    assert whole == [
        {"number": 1, "late": None},
        {"number": 2, "late": "x"},
        {"number": 3, "late": "y"},
    ]


def test_a_column_that_took_the_name_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    rows = pa.table({"a": [1], "b": [2], "s": [{"x": 1, "y": 2}]})
    made(tmp_path, rows.schema).append(rows)
    with table(tmp_path).update_schema() as change:
        change.rename_column("a", "c")
        change.rename_column("b", "a")
    last = pa.table({"c": [3], "a": [4], "s": [{"x": 3, "y": 4}]})
    table(tmp_path).append(last)
    expected = [{"c": 1, "a": 2, "s": {"x": 1, "y": 2}}, *last.to_pylist()]
    assert drain(task(tmp_path)).rows == expected
    with table(tmp_path).update_schema() as change:
        change.rename_column("s.x", "z")
    with table(tmp_path).update_schema() as change:
        change.rename_column("s.y", "x")
    with table(tmp_path).update_schema() as change:
        change.rename_column("s.z", "y")
    rows = pa.table({"c": [5], "a": [6], "s": [{"y": 5, "x": 6}]})
    table(tmp_path).append(rows)
    read = drain(task(tmp_path))
    assert read.rows == rows.to_pylist()
    skipped, _ = read.skipped
    assert "its column s is of type struct<x: int64, y: int64>, expected" in skipped.reason


def test_types_may_have_been_promoted(tmp_path: Path) -> None:
    made(tmp_path, pa.schema([("n", pa.int32())])).append(
        pa.table({"n": pa.array([1], pa.int32())})
    )
    with table(tmp_path).update_schema() as change:
        change.update_column("n", LongType())
    table(tmp_path).append(pa.table({"n": pa.array([2**40], pa.int64())}))
    read = drain(task(tmp_path))
    assert read.column("n") == [1, 2**40]
    assert {one.values.schema.field("n").type for one in read.batches} == {pa.int64()}


@pytest.mark.parametrize("path", [("new",), ("inner", "new"), ("many", "element", "new")])
def test_defaults_of_columns_that_files_lack_are_refused(
    tmp_path: Path, path: tuple[str, ...]
) -> None:
    """Within a struct such a field was null."""
    struct = pa.struct([("q", pa.int64())])
    rows = pa.table(
        {
            "inner": pa.array([{"q": 1}], struct),
            "many": pa.array([[{"q": 2}]], pa.list_(struct)),
        }
    )
    made(tmp_path, rows.schema).append(rows)
    read = drain(task(tmp_path))
    assert read.rows == rows.to_pylist()
    with table(tmp_path).update_schema() as change:
        change.add_column(path, LongType(), default_value=7)
    table(tmp_path).append(rows)
    told = rf"has a default for column {'.'.join(path)} in files that lack it"
    with pytest.raises(TableSourceError, match=told):
        drain(task(tmp_path))


def test_files_without_ids_are_read_by_a_name_mapping(tmp_path: Path) -> None:
    made(tmp_path, pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    place = tmp_path / "theirs.parquet"
    pq.write_table(
        pa.table({"m": pa.array([20], pa.int64()), "n": pa.array([1], pa.int64())}), place
    )
    table(tmp_path).add_files([place.as_uri()])
    assert drain(task(tmp_path)).rows == [{"n": 1, "m": 20}]


def test_tasks_share_the_files(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, number)
    settings = config(tmp_path, shares=3, tasks_max=2)
    tasks = tasks_of(IcebergSource, settings)
    reads = [drain(one) for one in tasks]
    for number in range(12, 16):
        write(tmp_path, number)
    numbers = [sorted(drain(one, read).column("n")) for one, read in zip(tasks, reads, strict=True)]
    assert all(numbers)
    assert sorted(chain.from_iterable(numbers)) == list(range(16))


def test_what_is_wrong_is_told_before_it_starts(tmp_path: Path) -> None:
    assert IcebergSource.validate(config(tmp_path)) == {}
    assert "expected a namespace" in IcebergSource.validate({"table": "x"})["table"][0]
    assert "names no catalog" in IcebergSource.validate({"table": "x.y"})["table"][0]
    place = {"table": "shop.rows", "share": 0, "of": 1}
    for good in ({"snapshot": 3}, {"after": 3}, {"snapshot": 3, "begin": "whole 3"}):
        assert IcebergSource.alter_offsets({}, [(place, good)])
    for wrong in ({}, {"after": "x"}, {"snapshot": -1}):
        with pytest.raises(ConfigError, match="whole number"):
            IcebergSource.alter_offsets({}, [(place, wrong)])


def test_offsets_are_altered(tmp_path: Path) -> None:
    ids = [write(tmp_path, number) for number in range(3)]
    place = {"table": "shop.rows", "share": 0, "of": 1}
    for offset, rows in (
        ({"snapshot": ids[1]}, [1, 2]),
        ({"after": ids[1]}, [2]),
        ({"after": 0}, [0, 1, 2]),
        ({"snapshot": ids[1], "begin": f"whole {ids[1]}"}, [0, 1, 2]),
    ):
        assert drain(task(tmp_path, [(place, offset)])).column("n") == rows


# -- snapshots that change rows --


def overwrite(subject: Any) -> None:
    subject.overwrite(pa.table({"n": pa.array([9], pa.int64())}))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "delete": lambda subject: subject.delete("n = 3"),
    "overwrite": lambda subject: subject.delete("n = 2"),
    "delete of all": overwrite,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_that_changes_rows_is_refused_by_name(tmp_path: Path, change: str) -> None:
    first = write(tmp_path, 1, 2)
    write(tmp_path, 3)
    CHANGES[change](table(tmp_path))
    write(tmp_path, 4)
    subject, read = task(tmp_path, starting_snapshot=first), Read()
    read.take(subject.poll())
    assert read.column("n") == [1, 2, 3], "what comes before it is given first"
    name = change.partition(" ")[0]
    told = rf"snapshot \d+ of table shop\.rows \({name}\) takes rows away or rewrites them"
    with pytest.raises(TableSourceError, match=f"{told}.* on.change = skip"):
        subject.poll()
    with pytest.raises(TableSourceError, match=told):
        drain(task(tmp_path, read.committed))
    skipping = task(tmp_path, read.committed, on_change="skip")
    later = drain(skipping).column("n")
    assert later == ([9, 4] if change == "delete of all" else [4])
    (told_once,) = skipping.context.logged  # type: ignore[attr-defined]
    assert "it is passed over, with what it adds, as on.change is skip" in told_once


def test_a_compaction_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg has none: an overwrite is told as what Java's rewrite of data files is."""
    for number in (1, 2):
        write(tmp_path, number)
    read = drain(task(tmp_path))
    subject = table(tmp_path)
    rows = subject.scan().to_arrow()
    summarised = snapshots_made.update_snapshot_summaries

    def as_replace(**given: Any) -> Any:
        return Summary(Operation.REPLACE, **summarised(**given).additional_properties)

    monkeypatch.setattr(snapshots_made, "update_snapshot_summaries", as_replace)
    with subject.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for task_of in subject.scan().plan_files():
            snapshot.delete_data_file(task_of.file)
        for file in _dataframe_to_data_files(subject.metadata, rows, subject.io):
            snapshot.append_data_file(file)
    monkeypatch.undo()
    assert table(tmp_path).current_snapshot().summary.operation is Operation.REPLACE
    write(tmp_path, 3)
    assert drain(task(tmp_path, read.committed)).column("n") == [3]
    assert sorted(drain(task(tmp_path)).column("n")) == [1, 2, 3]


# -- what is gone, and other tables --


def expire(folder: Path, *snapshots: int) -> None:
    table(folder).maintenance.expire_snapshots().by_ids(list(snapshots)).commit()


def test_snapshots_that_have_expired_are_told_with_the_two_ways_on(tmp_path: Path) -> None:
    write(tmp_path, 0)
    subject = task(tmp_path)
    read = drain(subject)
    ids = [write(tmp_path, number) for number in range(1, 4)]
    expire(tmp_path, read.committed[0][1]["after"], ids[0])
    told = rf"have expired before .* oldest that is there is {ids[1]}\. There are two ways on"
    for tried in (subject, task(tmp_path, read.committed)):
        with pytest.raises(TableSourceError, match=told):
            drain(tried)
    place = read.committed[0][0]
    assert drain(task(tmp_path, [(place, {"snapshot": ids[1]})])).column("n") == [2, 3]
    assert drain(task(tmp_path)).column("n") == [0, 1, 2, 3]


def test_what_was_read_may_expire(tmp_path: Path) -> None:
    ids = [write(tmp_path, number) for number in range(3)]
    read = drain(task(tmp_path))
    write(tmp_path, 3)
    expire(tmp_path, *ids)
    assert drain(task(tmp_path, read.committed)).column("n") == [3]


def test_a_snapshot_that_expires_while_it_is_read_is_told(tmp_path: Path) -> None:
    first = write(tmp_path, *range(6))
    subject, read = task(tmp_path, batch_rows=2), Read()
    read.take(subject.poll())
    write(tmp_path, 6)
    expire(tmp_path, first)
    with pytest.raises(TableSourceError, match=f"from {first} on have expired"):
        drain(task(tmp_path, read.committed))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("awaited", [True, False])
def test_the_first_snapshot_may_have_expired_before_it_was_read(
    tmp_path: Path, awaited: bool, version: int
) -> None:
    """pyiceberg makes what follows it the first of its line, and its rows were left out."""
    (tmp_path / "w").mkdir()
    properties = {"format-version": str(version)}
    if not awaited:
        made(tmp_path, pa.schema([("n", pa.int64())]), properties=properties)
    subject, read = task(tmp_path), Read()
    assert drain(subject, read).rows == []
    assert bool(read.committed) is not awaited
    if awaited:
        made(tmp_path, pa.schema([("n", pa.int64())]), properties=properties)
    ids = [write(tmp_path, number) for number in (1, 2, 3)]
    expire(tmp_path, ids[0])
    told = rf"after 0 on have expired before .* oldest that is there is {ids[1]}\. There are two"
    for tried in (subject, task(tmp_path, read.committed)) if read.committed else (subject,):
        with pytest.raises(TableSourceError, match=told):
            drain(tried)
    place = {"table": "shop.rows", "share": 0, "of": 1}
    assert drain(task(tmp_path, [(place, {"snapshot": ids[1]})])).column("n") == [2, 3]


def test_a_table_may_have_been_emptied_before_the_first_row(tmp_path: Path) -> None:
    """The table's sequence numbers go on where they were."""
    old = write(tmp_path, 1)
    table(tmp_path).manage_snapshots().remove_branch("main").commit()
    expire(tmp_path, old)
    subject = task(tmp_path)
    read = drain(subject)
    assert read.committed[0][1]["sequence"] == 1
    write(tmp_path, 2)
    write(tmp_path, 3)
    assert drain(subject, read).column("n") == [2, 3]


def test_a_table_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    ids = [write(tmp_path, number) for number in range(3)]
    subject = task(tmp_path)
    read = drain(subject)
    table(tmp_path).manage_snapshots().rollback_to_snapshot(ids[0]).commit()
    told = rf"was rolled back by others: snapshot {ids[2]}, which was read.*two ways on"
    for written in (False, True):
        if written:
            write(tmp_path, 30)
        with pytest.raises(TableSourceError, match=told):
            drain(task(tmp_path, read.committed))
    with pytest.raises(TableSourceError, match=told):
        drain(subject)
    place = read.committed[0][0]
    assert drain(task(tmp_path, [(place, {"after": ids[0]})])).column("n") == [30]


def test_a_rollback_of_what_was_not_read_costs_nothing(tmp_path: Path) -> None:
    first = write(tmp_path, 0)
    read = drain(task(tmp_path))
    write(tmp_path, 1)
    table(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    write(tmp_path, 2)
    assert drain(task(tmp_path, read.committed)).column("n") == [2]


def test_a_table_that_was_dropped_or_made_anew_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    read = drain(subject)
    lake(tmp_path).drop_table("shop.rows")
    for tried in (subject, task(tmp_path, read.committed)):
        with pytest.raises(TableSourceError, match="is gone: it was dropped or renamed"):
            drain(tried)
    write(tmp_path, 2)
    with pytest.raises(TableSourceError, match="was made anew: its UUID is"):
        drain(task(tmp_path, read.committed))


def test_a_table_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    subject = task(tmp_path)
    assert subject.poll() is None
    assert subject.poll() is None
    (told,) = subject.context.logged  # type: ignore[attr-defined]
    assert "there is no table shop.rows in the catalog yet: it is awaited" in told
    made(tmp_path, pa.schema([("n", pa.int64())]))
    assert drain(subject).rows == []
    write(tmp_path, 1)
    write(tmp_path, 2)
    assert drain(subject).column("n") == [1, 2]


def test_a_catalog_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    (tmp_path / "catalog.db").write_bytes(b"no database" * 1000)
    with pytest.raises(TableSourceError, match=r"table shop\.rows cannot be looked at"):
        drain(subject)


def test_a_snapshot_that_expired_is_told_where_its_child_still_names_it(tmp_path: Path) -> None:
    """Java leaves the snapshot's name in its child; pyiceberg removes it."""
    steps = IcebergSteps("shop.rows", NOWHERE, Share(0, 1), print, skips=False)
    last = SimpleNamespace(
        snapshot_id=2, parent_snapshot_id=1, sequence_number=2, timestamp_ms=0, schema_id=None
    )
    metadata = SimpleNamespace(snapshots=[last], current_snapshot_id=2)
    assert steps._line(metadata, _Place.of({"after": 1})) == [last]
    for offset in ({"snapshot": 1}, {"after": 7}):
        with pytest.raises(TableSourceError, match="have expired before the source had read them"):
            steps._line(metadata, _Place.of(offset))


def test_files_that_delete_rows_are_found_and_refused() -> None:
    """pyiceberg writes none: the entries are as it reads those of others."""
    steps = IcebergSteps("shop.rows", NOWHERE, Share(0, 1), print, skips=False)
    entry = SimpleNamespace(status=ManifestEntryStatus.ADDED, snapshot_id=5)
    manifest = SimpleNamespace(
        content=ManifestContent.DELETES,
        added_snapshot_id=5,
        fetch_manifest_entry=lambda _io, discard_deleted: [entry],
    )
    summary = SimpleNamespace(operation=Operation.OVERWRITE)
    made_it, later = (
        SimpleNamespace(snapshot_id=number, manifests=lambda _io: [manifest], summary=summary)
        for number in (5, 6)
    )
    with pytest.raises(TableSourceError, match="adds 1 that delete rows"):
        steps._added(made_it, files_of(made_it, None, whole=False), "snapshot 5")
    found = files_of(later, None, whole=True)
    assert (found.deletes, found.deleting) == (0, 1)
    with pytest.raises(TableSourceError, match=r"has 1 files that delete rows .*merge on read"):
        steps._whole(found)


# -- files --


def written(folder: Path) -> list[Path]:
    return sorted((folder / "w").rglob("*.parquet"), key=os.path.getmtime)


def test_a_data_file_that_is_gone_is_named(tmp_path: Path) -> None:
    first = write(tmp_path, 0)
    write(tmp_path, 1)
    written(tmp_path)[1].unlink()
    subject, read = task(tmp_path, starting_snapshot=first), Read()
    with pytest.raises(TableSourceError, match="is gone, and its rows from row 0 on were not read"):
        drain(subject, read)
    assert read.column("n") == [0]


def test_a_file_that_was_overwritten_costs_itself_alone(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    written(tmp_path)[1].write_bytes(b"PAR1")
    read = drain(task(tmp_path))
    assert read.column("n") == [0, 2]
    (skipped,) = read.skipped
    assert "it was overwritten" in skipped.reason


def test_a_column_that_only_its_partition_has_is_told(tmp_path: Path) -> None:
    columns = Schema(
        NestedField(1, "n", LongType(), required=False),
        NestedField(2, "p", IntegerType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    rows = pa.table({"n": pa.array([1], pa.int64()), "p": pa.array([7], pa.int32())})
    made(tmp_path, columns, partition_spec=spec).append(rows)
    (file,) = written(tmp_path)
    size = file.stat().st_size
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["p"]), file)
    data = file.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    # As many bytes as the manifest says: what stands before the footer is not looked at.
    file.write_bytes(data[:-footer] + bytes(size - len(data)) + data[-footer:])
    (skipped,) = drain(task(tmp_path)).skipped
    assert "it has no column p: only its partition has the value" in skipped.reason


def test_a_snapshot_without_files_is_passed_over(tmp_path: Path) -> None:
    """IcebergSink makes one where a batch changes no row."""
    rows = pa.table({"n": pa.array([1], pa.int64())})
    written = made(tmp_path, rows.schema)
    written.append(rows)
    source = task(tmp_path)
    read = drain(source)
    written.append(rows.slice(0, 0))
    assert drain(source, read).column("n") == [1]
    written.append(rows)
    assert drain(source, read).column("n") == [1, 1]
