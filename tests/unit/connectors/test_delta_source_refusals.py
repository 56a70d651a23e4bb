"""DeltaSource refuses, by name, versions that change rows, versions that are gone, and other
tables."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.task.table_sources import Offsets, Read, drain, tasks_of

from headgate.connector.api import SourceTask
from headgate_connectors.delta_source import DeltaSource
from headgate_connectors.tables.source import TableSourceError


def task(folder: Path, offsets: Offsets = (), **settings: Any) -> SourceTask:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config = {"path": str(folder / "table"), "topic": "t", **given}
    (made,) = tasks_of(DeltaSource, config, offsets)
    return made


def write(folder: Path, *numbers: int, **more: Any) -> None:
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    write_deltalake(folder / "table", rows, **{"mode": "append", **more})


def table(folder: Path) -> DeltaTable:
    return DeltaTable(folder / "table")


def log_file(folder: Path, version: int) -> Path:
    return folder / "table" / "_delta_log" / f"{version:020}.json"


def files_of(folder: Path, version: int) -> list[Path]:
    """Data files that a version has added."""
    actions = [json.loads(line) for line in log_file(folder, version).read_text().splitlines()]
    return [folder / "table" / each["add"]["path"] for each in actions if "add" in each]


def merge(subject: DeltaTable) -> None:
    source = pa.table({"n": pa.array([2, 50], pa.int64())})
    made = subject.merge(source, "t.n = s.n", source_alias="s", target_alias="t")
    made.when_matched_delete().when_not_matched_insert_all().execute()


CHANGES: dict[str, Callable[[DeltaTable], Any]] = {
    "DELETE": lambda subject: subject.delete("n = 2"),
    "UPDATE": lambda subject: subject.update({"n": "n + 100"}, predicate="n = 2"),
    "MERGE": merge,
    "WRITE": lambda subject: write_deltalake(
        subject, pa.table({"n": pa.array([9], pa.int64())}), mode="overwrite"
    ),
    "RESTORE": lambda subject: subject.restore(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_version_that_changes_rows_is_refused_by_name(tmp_path: Path, change: str) -> None:
    write(tmp_path, 1, 2)
    write(tmp_path, 3)
    CHANGES[change](table(tmp_path))
    write(tmp_path, 4)
    subject, read = task(tmp_path, starting_version=0), Read()
    told = rf"version 2 of the table at .*table \({change}\) takes rows away or rewrites them"
    read.take(subject.poll())
    assert read.column("n") == [1, 2, 3], "what comes before it is given first"
    for _ in range(2):
        with pytest.raises(TableSourceError, match=f"{told}.* on.change = skip"):
            subject.poll()
    with pytest.raises(TableSourceError, match=told):
        drain(task(tmp_path, read.committed))
    # The table as it is now may be read, whatever has been done to it.
    expected = table(tmp_path).to_pyarrow_table()["n"].to_pylist()
    assert sorted(drain(task(tmp_path)).column("n")) == sorted(expected)


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_passed_over_and_told_if_that_is_wanted(tmp_path: Path, change: str) -> None:
    write(tmp_path, 1, 2)
    write(tmp_path, 3)
    CHANGES[change](table(tmp_path))
    write(tmp_path, 4)
    subject = task(tmp_path, starting_version=0, on_change="skip")
    assert drain(subject).column("n") == [1, 2, 3, 4]
    (told,) = subject.context.logged  # type: ignore[attr-defined]
    assert f"version 2 of the table at {tmp_path / 'table'} ({change})" in told
    assert "it is passed over, with what it adds, as on.change is skip" in told


def test_a_restore_that_brings_rows_back_gives_them_no_second_time(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    table(tmp_path).delete()
    read = drain(task(tmp_path, starting_version=0, on_change="skip"))
    table(tmp_path).restore(1)
    actions = [json.loads(line) for line in log_file(tmp_path, 3).read_text().splitlines()]
    assert not any("remove" in each for each in actions)
    with pytest.raises(TableSourceError, match=r"version 3 .*\(RESTORE\)"):
        drain(task(tmp_path, read.committed))
    again = drain(task(tmp_path, read.committed, on_change="skip"))
    assert again.rows == []


# -- another table --


def test_a_table_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    subject = task(tmp_path)
    read = drain(subject)
    shutil.rmtree(tmp_path / "table")
    for tried in (subject, task(tmp_path, read.committed)):
        with pytest.raises(TableSourceError, match="is gone: it was dropped or moved"):
            drain(tried)
    write(tmp_path, 3)
    with pytest.raises(TableSourceError, match="is at version 0, but version 1 of it was read"):
        drain(task(tmp_path, read.committed))
    write(tmp_path, 4)
    write(tmp_path, 5)
    with pytest.raises(TableSourceError, match="the commit of its version 1 is not the same"):
        drain(task(tmp_path, read.committed))
    without = [(place, {**offset, "log": None}) for place, offset in read.committed]
    with pytest.raises(TableSourceError, match="was replaced: its id is"):
        drain(task(tmp_path, without))


def test_a_table_that_was_set_back_under_a_task_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    subject = task(tmp_path)
    drain(subject)
    log_file(tmp_path, 1).unlink()
    with pytest.raises(TableSourceError, match="is at version 0, but version 1 of it was read"):
        subject.poll()


def test_a_table_that_was_made_anew_under_a_task_is_refused(tmp_path: Path) -> None:
    """The new table has as many versions as the old one, and more. Only its log shows the
    difference."""
    write(tmp_path, 1)
    write(tmp_path, 2)
    subject = task(tmp_path)
    drain(subject)
    shutil.rmtree(tmp_path / "table")
    for number in (3, 4):
        write(tmp_path, number)
    assert subject.poll() is None, "it has as many versions as were read"
    write(tmp_path, 5)
    with pytest.raises(TableSourceError, match="the commit of its version 1 is not the same"):
        subject.poll()


def test_another_table_whose_log_was_cleaned_up_is_refused_by_its_id(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    subject = task(tmp_path)
    read = drain(subject)
    shutil.rmtree(tmp_path / "table")
    for number in (3, 4, 5):
        write(tmp_path, number)
    table(tmp_path).create_checkpoint()
    for version in (0, 1):
        log_file(tmp_path, version).unlink()
    for tried in (subject, task(tmp_path, read.committed)):
        with pytest.raises(TableSourceError, match="was replaced: its id is"):
            drain(tried)


def test_a_table_that_was_set_back_and_written_on_is_refused(tmp_path: Path) -> None:
    """The table has the same id: it is a copy of an older state, to which rows were written
    since."""
    write(tmp_path, 1)
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    write(tmp_path, 2)
    subject = task(tmp_path)
    read = drain(subject)
    inside: Offsets = [
        (one.source_partition, one.source_offset)
        for one in drain(task(tmp_path, starting_version=0)).batches[-1:]
    ]
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "older").rename(tmp_path / "table")
    write(tmp_path, 20)
    write(tmp_path, 30)
    for tried in (subject, task(tmp_path, read.committed), task(tmp_path, inside)):
        with pytest.raises(TableSourceError, match="the commit of its version 1 is not the same"):
            drain(tried)


@pytest.mark.parametrize("how", ["fail", "skip"])
def test_a_table_that_was_replaced_in_its_log_is_refused(tmp_path: Path, how: str) -> None:
    write(tmp_path, 1)
    read = drain(task(tmp_path))
    columns = table(tmp_path).to_pyarrow_table().schema
    DeltaTable.create(tmp_path / "table", columns, mode="overwrite")
    with pytest.raises(TableSourceError, match=r"was replaced: its id is .* rows come again"):
        drain(task(tmp_path, read.committed, on_change=how))


def test_a_copy_of_the_table_in_its_place_goes_on(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    read = drain(subject)
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "copy").rename(tmp_path / "table")
    write(tmp_path, 2)
    assert drain(subject, read).column("n") == [1, 2]


# -- what is gone --


def test_versions_whose_log_is_gone_are_named_with_the_two_ways_on(tmp_path: Path) -> None:
    write(tmp_path, 0)
    subject = task(tmp_path)
    read = drain(subject)
    for number in range(1, 5):
        write(tmp_path, number)
    table(tmp_path).create_checkpoint()
    for version in (0, 1, 2, 3):
        log_file(tmp_path, version).unlink()
    told = r"versions 1 to 3 are no longer in the log of the table at .* two ways on: .* version 4"
    for tried in (subject, task(tmp_path, read.committed)):
        with pytest.raises(TableSourceError, match=told):
            drain(tried)
    with pytest.raises(TableSourceError, match="versions 0 to 3 are no longer in the log"):
        drain(task(tmp_path, starting_version=0))
    # Both ways on.
    assert sorted(drain(task(tmp_path)).column("n")) == [0, 1, 2, 3, 4]
    place = read.committed[0][0]
    behind = task(tmp_path, [(place, {"version": 4})])
    write(tmp_path, 5)
    assert drain(behind).column("n") == [4, 5]
    log_file(tmp_path, 5).unlink()
    table(tmp_path).create_checkpoint()
    log_file(tmp_path, 4).unlink()
    with pytest.raises(TableSourceError, match=r"versions 1 to 4 are no longer .* version 5"):
        drain(task(tmp_path, read.committed))


def test_what_was_read_may_be_cleaned_up(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    subject = task(tmp_path)
    read = drain(subject)
    write(tmp_path, 3)
    table(tmp_path).create_checkpoint()
    for version in (0, 1, 2):
        log_file(tmp_path, version).unlink()
    assert drain(task(tmp_path, read.committed)).column("n") == [3]
    assert drain(subject, read).column("n") == [0, 1, 2, 3]


def test_a_whole_table_whose_log_is_gone_before_all_was_read_is_told(tmp_path: Path) -> None:
    write(tmp_path, *range(6))
    subject, read = task(tmp_path, batch_rows=2), Read()
    read.take(subject.poll())
    for number in range(6, 9):
        write(tmp_path, number)
    table(tmp_path).create_checkpoint()
    for version in range(3):
        log_file(tmp_path, version).unlink()
    with pytest.raises(TableSourceError, match=r"version 0 of .* two ways on: .* to version 1"):
        drain(task(tmp_path, read.committed))


@pytest.mark.parametrize("starting", ["whole", "0"])
def test_a_data_file_that_is_gone_is_named(tmp_path: Path, starting: str) -> None:
    for number in range(3):
        write(tmp_path, number)
    (file,) = files_of(tmp_path, 1)
    file.unlink()
    subject, read = task(tmp_path, starting_version=starting), Read()
    told = rf"file {file.name} of .* is gone, and its rows from row 0 .* two ways on"
    with pytest.raises(TableSourceError, match=told):
        drain(subject, read)
    with pytest.raises(TableSourceError, match=told):
        drain(task(tmp_path, read.committed, starting_version=starting), read)
    if starting == "0":
        assert read.column("n") == [0]
        behind = [(read.committed[0][0], {"version": 2})]
        assert drain(task(tmp_path, behind)).column("n") == [2]


def test_vacuumed_files_are_named(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    table(tmp_path).optimize.compact()
    table(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TableSourceError, match=r"of version 0 of .* is gone"):
        drain(task(tmp_path, starting_version=0))
    assert sorted(drain(task(tmp_path)).column("n")) == [0, 1, 2]


def test_a_file_that_its_version_does_not_name_is_told(tmp_path: Path) -> None:
    write(tmp_path, 1)
    place = {"table": str(tmp_path / "table"), "share": 0, "of": 1}
    inside = {"version": 0, "file": "other.parquet", "row": 1}
    with pytest.raises(TableSourceError, match=r"does not name the file other\.parquet"):
        drain(task(tmp_path, [(place, inside)]))


# -- what comes later --


def test_a_table_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    subject = task(tmp_path)
    assert subject.poll() is None
    assert subject.poll() is None
    (told,) = subject.context.logged  # type: ignore[attr-defined]
    assert f"there is no Delta table at {tmp_path / 'table'} yet: it is awaited" in told
    write(tmp_path, 1)
    write(tmp_path, 2)
    assert drain(subject).column("n") == [1, 2]


def test_a_start_in_the_future_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(TableSourceError, match="is at version 0, and is to be read from version 9"):
        drain(task(tmp_path, starting_version=9))


# -- what cannot be read --


def with_actions(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    """Another version with these actions; of those that are there, it replaces what it names."""
    log = log_file(folder, version)
    names = {name for each in actions for name in each}
    there = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    kept = [each for each in there if names.isdisjoint(each)]
    log.write_text("".join(json.dumps(each) + "\n" for each in [*kept, *actions]))


def protocol(*features: str, reader: int = 3) -> dict[str, Any]:
    found = list(features)
    told = {"minReaderVersion": reader, "minWriterVersion": 7, "writerFeatures": found}
    return {"protocol": {**told, "readerFeatures": found}}


def meta(folder: Path, **changed: Any) -> dict[str, Any]:
    actions = [json.loads(line) for line in log_file(folder, 0).read_text().splitlines()]
    (found,) = (each["metaData"] for each in actions if "metaData" in each)
    return {"metaData": {**found, **changed}}


MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    "feature", ["deletionVectors", "typeWidening", "variantType", "whatever", "catalogManaged"]
)
@pytest.mark.parametrize("when", ["at first", "later"])
def test_features_of_readers_are_refused_by_name(tmp_path: Path, feature: str, when: str) -> None:
    write(tmp_path, 1)
    if when == "at first":
        with_actions(tmp_path, 0, protocol(feature))
        # Those that delta-rs does not know either, it names itself.
        with pytest.raises(TableSourceError, match=rf"the table at .*{feature}|catalog-managed"):
            drain(task(tmp_path))
        return
    subject = task(tmp_path)
    read = drain(subject)
    write(tmp_path, 2)
    with_actions(tmp_path, 2, protocol(feature))
    told = f"version 2 of the table at .* has the reader feature {feature}"
    with pytest.raises(TableSourceError, match=told):
        drain(subject, read)
    assert read.column("n") == [1, 2]


def test_features_that_change_no_file_are_read(tmp_path: Path) -> None:
    write(tmp_path, 1)
    features = ("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping")
    with_actions(tmp_path, 0, protocol(*features))
    assert drain(task(tmp_path)).column("n") == [1]


def test_a_newer_reader_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    drain(subject)
    with_actions(tmp_path, 1, protocol(reader=4))
    with pytest.raises(TableSourceError, match=r"version 1 .* needs readers of version 4"):
        drain(subject)


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    drain(subject)
    with_actions(tmp_path, 1, meta(tmp_path, configuration=MAPPED))
    with pytest.raises(TableSourceError, match=r"version 1 .* has column mapping .* = name"):
        drain(subject)


def test_partitions_of_bytes_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "raw": [b"x"]})
    write_deltalake(tmp_path / "table", rows, partition_by=["raw"])
    with pytest.raises(TableSourceError, match="is partitioned by raw of type binary"):
        drain(task(tmp_path))


def test_a_value_of_a_partition_that_is_none_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "p": pa.array([1], pa.int32())})
    write_deltalake(tmp_path / "table", rows, partition_by=["p"])
    subject = task(tmp_path)
    drain(subject)
    add = {"path": "x.parquet", "partitionValues": {"p": "one"}, "dataChange": True, "size": 1}
    with_actions(tmp_path, 1, {"add": {**add, "modificationTime": 0}})
    told = "version 1 .* has the text 'one' for the partition column p, which is no int32"
    with pytest.raises(TableSourceError, match=told):
        drain(subject)


@pytest.mark.parametrize("path", ["file:///x/y.parquet", "/x/y.parquet", "../y.parquet"])
def test_files_of_other_tables_are_refused(tmp_path: Path, path: str) -> None:
    write(tmp_path, 1)
    read = drain(task(tmp_path))
    add = {"path": path, "partitionValues": {}, "dataChange": True, "size": 1}
    with_actions(tmp_path, 1, {"add": {**add, "modificationTime": 0}})
    with pytest.raises(TableSourceError, match=r"version 1 .* outside of the table's folder"):
        drain(task(tmp_path, read.committed))


def test_a_commit_that_is_no_json_is_told(tmp_path: Path) -> None:
    write(tmp_path, 1)
    subject = task(tmp_path)
    drain(subject)
    log_file(tmp_path, 1).write_text("{no json\n")
    with pytest.raises(TableSourceError, match=r"version 1 of the table at .* cannot be read"):
        drain(subject)
