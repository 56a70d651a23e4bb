"""The task of DeltaSource, driven by hand: versions, types, offsets, shares."""

import datetime
import json
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.task.table_sources import Offsets, Read, drain, tasks_of

from headgate.connector.api import ExactlyOnceSupport, SourceTask
from headgate.connector.config import ConfigError
from headgate.testing import FakeConnectorContext
from headgate_arrow import arrow_types
from headgate_connectors.delta_source import DeltaSource
from headgate_connectors.tables.source import TableSourceError
from headgate_runtime.up.places import look_at

NESTED = pa.struct([("q", pa.int64()), ("r", pa.list_(pa.string()))])
EVERY: Any = pa.table(
    {
        "n": pa.array([1, 2, 3], pa.int64()),
        "i8": pa.array([-128, 127, None], pa.int8()),
        "i16": pa.array([-1, 1, None], pa.int16()),
        "i32": pa.array([-1, 1, None], pa.int32()),
        "f32": pa.array([0.5, float("inf"), None], pa.float32()),
        "f64": pa.array([0.1, -0.0, None], pa.float64()),
        "ok": pa.array([True, False, None]),
        "text": pa.array(["", "ä", None]),
        "raw": pa.array([b"", b"\x00\xff", None]),
        "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
        "at": pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
        "local": pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us")),
        "price": pa.array([Decimal("-1.20"), Decimal("9.99"), None], pa.decimal128(38, 2)),
        "many": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "inner": pa.array([{"q": 1, "r": ["x"]}, {"q": None, "r": None}, None], NESTED),
        "map": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
    }
)


def config_of(folder: Path, **settings: Any) -> dict[str, str]:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return {"path": str(folder / "table"), "topic": "t", **given}


def task(folder: Path, offsets: Offsets = (), **settings: Any) -> SourceTask:
    (made,) = tasks_of(DeltaSource, config_of(folder, **settings), offsets)
    return made


def write(folder: Path, *numbers: int, **more: Any) -> None:
    """Write one version with these rows."""
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    write_deltalake(folder / "table", rows, mode="append", **more)


def table(folder: Path) -> DeltaTable:
    return DeltaTable(folder / "table")


def add_commit(folder: Path, *actions: dict[str, Any]) -> None:
    """A version that consists of these actions."""
    version = table(folder).version() + 1
    log = folder / "table" / "_delta_log" / f"{version:020}.json"
    log.write_text("".join(json.dumps(each) + "\n" for each in actions))


def test_the_whole_table_and_then_what_each_version_adds(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    write(tmp_path, 3)
    subject = task(tmp_path)
    read = drain(subject)
    assert read.column("n") == [1, 2, 3]
    write(tmp_path, 4)
    write(tmp_path, 5, 6)
    assert drain(subject, read).column("n") == [1, 2, 3, 4, 5, 6]
    assert subject.poll() is None
    ((partition, offset),) = read.committed
    assert partition == {"table": str(tmp_path / "table"), "share": 0, "of": 1}
    about = table(tmp_path).metadata()
    assert (offset["version"], offset["begin"], offset["id"]) == (4, "whole 1", about.id)
    write(tmp_path, 7)
    assert drain(task(tmp_path, read.committed)).column("n") == [7]


@pytest.mark.parametrize(
    ("starting", "rows"), [("latest", []), ("0", [1, 2, 3]), ("1", [2, 3]), ("3", [])]
)
def test_it_begins_where_starting_version_says(
    tmp_path: Path, starting: str, rows: list[int]
) -> None:
    for number in (1, 2, 3):
        write(tmp_path, number)
    subject = task(tmp_path, starting_version=starting)
    read = drain(subject)
    assert read.column("n") == rows
    # Without any row, too, the offset is told: what comes now is not passed over.
    assert read.committed[0][1]["version"] == 3
    write(tmp_path, 4)
    assert drain(task(tmp_path, read.committed), read).column("n") == [*rows, 4]


def test_versions_that_rewrite_no_rows_give_nothing(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, number)
    subject = task(tmp_path, starting_version=0)
    read = drain(subject)
    table(tmp_path).optimize.compact()
    table(tmp_path).optimize.z_order(["n"])
    table(tmp_path).alter.set_table_properties({"delta.appendOnly": "false"})
    table(tmp_path).create_checkpoint()
    write(tmp_path, 4)
    assert sorted(drain(subject, read).column("n")) == [0, 1, 2, 3, 4]
    assert drain(task(tmp_path, starting_version="whole")).column("n") == [0, 1, 2, 3, 4]


def test_columns_keep_their_types(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", EVERY)
    read = drain(task(tmp_path))
    (batch,) = read.batches
    expected = pa.schema(table(tmp_path).schema().to_arrow())
    assert batch.values.schema.types == expected.types == EVERY.schema.types
    assert batch.value_schema == arrow_types.struct_schema(EVERY.schema)
    assert read.table().equals(EVERY.cast(read.table().schema))
    write_deltalake(tmp_path / "table", EVERY, mode="append")
    later = drain(task(tmp_path, read.committed))
    assert later.table().equals(read.table())


PARTS = ("i8", "i16", "i32", "f32", "f64", "ok", "text", "day", "at", "local", "price")


@pytest.mark.parametrize("starting", ["whole", "0"])
def test_partition_columns_are_in_the_rows_with_their_types(tmp_path: Path, starting: str) -> None:
    rows = EVERY.select(["n", *PARTS]).filter(pa.compute.not_equal(EVERY["text"], ""))
    rows = pa.concat_tables([rows, EVERY.select(["n", *PARTS]).slice(2)])
    write_deltalake(tmp_path / "table", rows, partition_by=list(PARTS))
    read = drain(task(tmp_path, starting_version=starting))
    found = pa.Table.from_batches([one.values for one in read.batches]).sort_by("n")
    assert found.schema.equals(rows.schema)
    assert found.equals(rows)


def test_names_of_partitions_may_have_any_character(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "p": ["a b/c", "x%20=é", "+:?#"]})
    write_deltalake(tmp_path / "table", rows, partition_by=["p"])
    for starting in ("whole", "0"):
        found = drain(task(tmp_path, starting_version=starting)).rows
        assert sorted(found, key=lambda row: row["n"]) == rows.to_pylist()


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-01-02 03:04:05", 0),
        ("2026-01-02 03:04:05.000007", 7),
        ("2026-01-02T03:04:05.000007Z", 7),
        ("2026-01-02T04:04:05.000007+01:00", 7),
    ],
)
def test_timestamps_of_partitions_are_read_in_each_form(
    tmp_path: Path, text: str, micros: int
) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, micros, datetime.UTC)
    rows = pa.table({"n": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "table", rows, partition_by=["at"])
    read = drain(task(tmp_path))
    (file,) = (tmp_path / "table").rglob("*.parquet")
    path = "again.parquet"
    file.rename(tmp_path / "table" / path)
    add = {"path": path, "partitionValues": {"at": text}, "dataChange": True}
    size = (tmp_path / "table" / path).stat().st_size
    add_commit(tmp_path, {"add": {**add, "size": size, "modificationTime": 0}})
    assert drain(task(tmp_path, read.committed)).column("at") == [at]


def test_an_empty_text_of_a_partition_is_null(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", pa.table({"n": [1], "p": ["x"]}), partition_by=["p"])
    read = drain(task(tmp_path))
    (file,) = (tmp_path / "table").rglob("*.parquet")
    place = str(file.relative_to(tmp_path / "table"))
    add = {"path": place, "partitionValues": {"p": ""}, "size": file.stat().st_size}
    add_commit(tmp_path, {"add": {**add, "dataChange": True, "modificationTime": 0}})
    assert drain(task(tmp_path, read.committed)).rows == [{"n": 1, "p": None}]


def test_rows_carry_the_schema_of_their_version(tmp_path: Path) -> None:
    write(tmp_path, 1)
    rows = pa.table({"n": [2], "late": ["x"]})
    write_deltalake(tmp_path / "table", rows, mode="append", schema_mode="merge")
    write(tmp_path, 3, schema_mode="merge")
    read = drain(task(tmp_path, starting_version=0))
    assert read.rows == [{"n": 1}, {"n": 2, "late": "x"}, {"n": 3, "late": None}]
    names = [[field.name for field in batch.value_schema.fields] for batch in read.batches]
    assert names == [["n"], ["n", "late"], ["n", "late"]]
    whole = drain(task(tmp_path))
    assert sorted(whole.rows, key=lambda row: row["n"]) == [
        {"n": 1, "late": None},
        {"n": 2, "late": "x"},
        {"n": 3, "late": None},
    ]
    # A start between two versions has the schema of that version, and not of the newest.
    first = drain(task(tmp_path, starting_version=0)).batches[0]
    begun: Offsets = [(first.source_partition, first.source_offset)]
    assert drain(task(tmp_path, begun)).rows == read.rows[1:]


def test_fields_that_structs_got_later_are_null_in_older_files(tmp_path: Path) -> None:
    one = pa.table({"s": [{"a": 1}], "many": [[{"a": 1}]]})
    two = pa.table({"s": [{"a": 2, "b": "x"}], "many": [[{"a": 2, "b": "y"}]]})
    write_deltalake(tmp_path / "table", one)
    write_deltalake(tmp_path / "table", two, mode="append", schema_mode="merge")
    found = sorted(drain(task(tmp_path)).rows, key=lambda row: row["s"]["a"])
    assert found[0] == {"s": {"a": 1, "b": None}, "many": [{"a": 1, "b": None}]}
    assert found[1] == two.to_pylist()[0]


def test_columns_that_are_never_null_say_so(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())])
    write_deltalake(tmp_path / "table", pa.table({"n": [1], "text": ["x"]}, schema=columns))
    (batch,) = drain(task(tmp_path)).batches
    assert [field.schema.optional for field in batch.value_schema.fields] == [False, True]


def test_it_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array(range(10), pa.int64())})
    for _ in range(2):
        write_deltalake(tmp_path / "table", rows, mode="append")
    subject = task(tmp_path, batch_rows=3)
    read = Read()
    for _ in range(3):
        read.take(subject.poll())
    assert len(read.rows) == 9 and read.committed[0][1]["row"] == 9
    drain(task(tmp_path, read.committed, batch_rows=4), read)
    assert read.column("n") == [*range(10), *range(10)]


def test_a_poll_has_as_many_rows_as_it_may(tmp_path: Path) -> None:
    for number in range(7):
        write(tmp_path, number)
    polls = []
    subject = task(tmp_path, batch_rows=3)
    while items := subject.poll():
        polls.append(sum(getattr(item, "count", 0) for item in items))
    assert polls == [3, 3, 1]
    rows = pa.table({"n": pa.array(range(20_000), pa.int64())})
    write_deltalake(tmp_path / "table", rows, mode="append")
    offsets = drain(subject).committed
    (kept,) = tasks_of(
        DeltaSource, config_of(tmp_path, starting_version=7), offsets, keeps_batches=True
    )
    assert kept.poll() is None
    (kept,) = tasks_of(DeltaSource, config_of(tmp_path, starting_version=7), keeps_batches=True)
    assert sum(getattr(item, "count", 0) for item in kept.poll() or ()) == 20_000


# -- shares --


def test_tasks_share_the_files_of_each_version(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, number)
    config = config_of(tmp_path, shares=3, tasks_max=2)
    tasks = tasks_of(DeltaSource, config)
    assert len(tasks) == 2
    reads = [drain(one) for one in tasks]
    for number in range(12, 24):
        write(tmp_path, number)
    reads = [drain(one, read) for one, read in zip(tasks, reads, strict=True)]
    numbers = [sorted(read.column("n")) for read in reads]
    assert all(numbers)
    assert sorted(chain.from_iterable(numbers)) == list(range(24))
    committed = [each for read in reads for each in read.committed]
    assert len(committed) == 3
    write(tmp_path, 24)
    # One task may go on with what two have begun.
    (one,) = tasks_of(DeltaSource, {**config, "tasks.max": "1"}, committed)
    assert drain(one).column("n") == [24]


def test_all_shares_begin_with_one_version(tmp_path: Path) -> None:
    """Otherwise a compaction in between would hide rows of one share, and double those of
    another."""
    for number in range(12):
        write(tmp_path, number)
    config = config_of(tmp_path, shares=2, tasks_max=2)
    begun = drain(tasks_of(DeltaSource, config)[0])
    table(tmp_path).optimize.compact()
    tasks = tasks_of(DeltaSource, config, begun.committed)
    for one in tasks:
        drain(one, begun)
    assert sorted(begun.column("n")) == list(range(12))
    # The connector may not have seen the offsets yet when it was asked for task configs.
    again = drain(tasks_of(DeltaSource, config)[1])
    drain(tasks_of(DeltaSource, config, again.committed, first=())[0], again)
    assert sorted(again.column("n")) == list(range(12))


def test_task_configs_stay_as_they_are_once_rows_were_written(tmp_path: Path) -> None:
    """Different task configs would restart all tasks whenever the connector moves to another
    worker."""
    write(tmp_path, 1)
    made, found = DeltaSource(), list[Any]()
    made.start(config_of(tmp_path))
    offsets: Offsets = ()
    for _ in range(2):
        made.context = FakeConnectorContext(offsets)
        found.append(made.task_configs(1))
        offsets = offsets or drain(task(tmp_path)).committed
        write(tmp_path, 2)
    assert found[0] == found[1]
    made.context = FakeConnectorContext()
    assert made.task_configs(1) != found[0]


def test_shares_that_began_differently_are_told(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    name = str(tmp_path / "table")
    offsets: Offsets = [
        ({"table": name, "share": 0, "of": 3}, {"version": 2, "begin": "whole 1"}),
        ({"table": name, "share": 1, "of": 3}, {"version": 2, "begin": "from 0"}),
    ]
    config = config_of(tmp_path, shares=3)
    with pytest.raises(TableSourceError, match=r"began differently \(from 0, whole 1\)"):
        tasks_of(DeltaSource, config, offsets)
    third = ({"table": name, "share": 2, "of": 3}, {"version": 2})
    assert len(tasks_of(DeltaSource, config, [*offsets, third])) == 1


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"shares": "2"}, "configuration shares: rows were written with 1 shares"), ({}, "rows of")],
)
def test_neither_the_table_nor_the_shares_are_changed(
    tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    write(tmp_path, 1)
    offsets = drain(task(tmp_path)).committed
    config = config_of(tmp_path, **changed)
    if not changed:
        (tmp_path / "other").mkdir()
        write(tmp_path / "other", 1)
        config = config_of(tmp_path / "other")
    with pytest.raises(ConfigError, match=told):
        tasks_of(DeltaSource, config, offsets)


# -- configs and offsets --


def test_what_is_wrong_is_told_before_it_starts(tmp_path: Path) -> None:
    def faults(**settings: Any) -> Any:
        return DeltaSource.validate(config_of(tmp_path, **settings))

    assert faults() == {}
    assert "is an address" in faults(path="s3://x/y")["path"][0]
    (tmp_path / "file").touch()
    assert "is a file" in faults(path=str(tmp_path / "file"))["path"][0]
    write(tmp_path, 1)
    assert faults() == faults(starting_version="1") == {}
    assert faults(starting_version="2") == {
        "starting.version": ["is 2, but the table is at version 0"]
    }
    add_commit(tmp_path, protocol("deletionVectors"))
    assert "has the reader feature deletionVectors" in faults()["path"][0]
    assert DeltaSource.exactly_once_support({}) is ExactlyOnceSupport.SUPPORTED
    for wrong in ("", "-1", "now", "1.5"):
        with pytest.raises(ConfigError, match=r"starting\.version"):
            DeltaSource.config_def().parse(config_of(tmp_path, starting_version=wrong))


def test_a_pipeline_says_that_a_table_is_not_there_yet(tmp_path: Path) -> None:
    """The missing table may be intended, or a typing error."""
    config = {"connector.class": "DeltaSource", **config_of(tmp_path)}
    said = look_at(config, tmp_path)
    assert said is not None and not said.fault
    assert "yet; its task waits for it" in said.text
    write(tmp_path, 1)
    assert look_at(config, tmp_path) is None


def protocol(*features: str, reader: int = 3) -> dict[str, Any]:
    found = list(features)
    told = {"minReaderVersion": reader, "minWriterVersion": 7, "writerFeatures": found}
    return {"protocol": {**told, "readerFeatures": found}}


def test_offsets_are_altered(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, number)
    place = {"table": str(tmp_path / "table"), "share": 0, "of": 1}
    for offset, rows in (
        ({"version": 2}, [2, 3]),
        ({"version": 2, "begin": "whole 2"}, [0, 1, 2, 3]),
        ({"version": 4}, []),
    ):
        assert DeltaSource.alter_offsets({}, [(place, offset)])
        read = drain(task(tmp_path, [(place, offset)]), Read([(place, offset)]))
        assert sorted(read.column("n")) == rows
        write(tmp_path, 100)
        assert drain(task(tmp_path, read.committed)).column("n") == [100]
        table(tmp_path).restore(3)
        for version in (4, 5):
            (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    assert DeltaSource.alter_offsets({}, [(place, None), ({"x": 1}, None)])
    for wrong in ({}, {"version": -1}, {"version": "2"}, {"version": True}, {"version": 1.5}):
        with pytest.raises(ConfigError, match="'version'"):
            DeltaSource.alter_offsets({}, [(place, wrong)])
    with pytest.raises(ConfigError, match="'row'"):
        DeltaSource.alter_offsets({}, [(place, {"version": 2, "file": "x"})])
    with pytest.raises(ConfigError, match="'begin'"):
        DeltaSource.alter_offsets({}, [(place, {"version": 2, "begin": "two"})])
    with pytest.raises(ConfigError, match="table, share and of"):
        DeltaSource.alter_offsets({}, [({"table": "x"}, {"version": 2})])


# -- files --


def test_old_timestamps_of_spark_are_read(tmp_path: Path) -> None:
    """Timestamps of the kind INT96 do not say whether they have a zone."""
    at = pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
    rows = pa.table({"n": [1, 2, 3], "at": at, "in": [[one] for one in at.to_pylist()]})
    rows = rows.set_column(2, "in", rows["in"].cast(pa.list_(at.type)))
    write_deltalake(tmp_path / "table", rows)
    (file,) = (tmp_path / "table").glob("*.parquet")
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    rewrite_log(tmp_path, size=file.stat().st_size)
    assert drain(task(tmp_path)).rows == rows.to_pylist()
    assert drain(task(tmp_path, starting_version=0, batch_rows=2)).rows == rows.to_pylist()


def rewrite_log(folder: Path, version: int = 0, **changed: Any) -> None:
    """Other members in the action ``add`` of a version."""
    log = folder / "table" / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"] |= changed
    log.write_text("".join(json.dumps(each) + "\n" for each in actions))


@pytest.mark.parametrize("within", ["a column", "a list", "a struct", "a map"])
def test_days_by_the_old_calendar_cost_themselves_alone(tmp_path: Path, within: str) -> None:
    days = [datetime.date(1500, 1, 1), datetime.date(2000, 1, 1), datetime.date(1400, 1, 1)]
    column = {
        "a column": lambda: pa.array(days),
        "a list": lambda: pa.array([[day] for day in days]),
        "a struct": lambda: pa.array([{"d": day} for day in days]),
        "a map": lambda: pa.array(
            [[("d", day)] for day in days], pa.map_(pa.string(), pa.date32())
        ),
    }[within]()
    rows = pa.table({"n": [1, 2, 3], "day": column})
    write_deltalake(tmp_path / "table", rows)
    (file,) = (tmp_path / "table").glob("*.parquet")
    told = {"org.apache.spark.version": "3.1.0", "org.apache.spark.legacyDateTime": ""}
    pq.write_table(rows.replace_schema_metadata(told), file)
    rewrite_log(tmp_path, size=file.stat().st_size)
    read = drain(task(tmp_path))
    assert read.column("n") == [2]
    assert ["by the old calendar" in one.reason for one in read.skipped] == [True, True]
    assert read.batches[0].source_offset["row"] == 2
    assert [one.source_offset["row"] for one in read.skipped] == [1, 3]


def another_type(file: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([7.5], pa.float64())}), file)


def no_column(file: Path) -> None:
    pq.write_table(pa.table({"m": [7]}), file)


def an_inner_field(file: Path) -> None:
    pq.write_table(pa.table({"n": [{"a": 1}]}), file)


BAD = {
    "another type": (another_type, "its column n is of type double, expected int64"),
    "a struct": (an_inner_field, "its column n is of type struct<a: int64>, expected int64"),
    "no footer": (lambda file: file.write_bytes(b"PAR1xxxxPAR1"), "its footer does not parse"),
    "no column": (no_column, "it has no column n, which is never null"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_file_costs_itself_alone(tmp_path: Path, fault: str) -> None:
    spoil, told = BAD[fault]
    columns = pa.schema([pa.field("n", pa.int64(), nullable=fault != "no column")])
    for number in range(3):
        rows = pa.table({"n": [number]}, schema=columns)
        write_deltalake(tmp_path / "table", rows, mode="append")
    log = (tmp_path / "table" / "_delta_log" / f"{1:020}.json").read_text()
    (name,) = (json.loads(line)["add"]["path"] for line in log.splitlines() if '"add"' in line)
    file = tmp_path / "table" / name
    spoil(file)
    rewrite_log(tmp_path, 1, size=file.stat().st_size)
    read = drain(task(tmp_path, starting_version=0))
    assert read.column("n") == [0, 2]
    (skipped,) = read.skipped
    assert told in skipped.reason and f"{name} of version 1 of" in skipped.reason
    # A source that passes over it goes on after it.
    after: Offsets = [(skipped.source_partition, skipped.source_offset)]
    assert drain(task(tmp_path, after)).column("n") == [2]


def test_a_file_that_was_overwritten_is_told(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    (file,) = (tmp_path / "table").glob("*.parquet")
    pq.write_table(pa.table({"n": [1, 2, 3, 4]}), file)
    read = drain(task(tmp_path))
    assert not read.rows
    (skipped,) = read.skipped
    assert "it was overwritten" in skipped.reason and skipped.count == 2
    rewrite_log(tmp_path, size=file.stat().st_size)
    place = {"table": str(tmp_path / "table"), "share": 0, "of": 1}
    inside = {"version": 0, "file": file.name, "row": 5}
    (skipped,) = drain(task(tmp_path, [(place, inside)])).skipped
    assert "it has 4 rows, but 5 of it were read" in skipped.reason


def test_a_row_group_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    write(tmp_path, 0)
    read = drain(task(tmp_path))
    (old,) = (tmp_path / "table").glob("*.parquet")
    file = tmp_path / "table" / "groups.parquet"
    rows = pa.table({"n": pa.array(range(9), pa.int64())})
    pq.write_table(rows, file, row_group_size=3, compression="none", use_dictionary=False)
    group = pq.ParquetFile(file).metadata.row_group(1).column(0)
    data = bytearray(file.read_bytes())
    start = group.data_page_offset
    data[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    file.write_bytes(data)
    add = {"path": file.name, "partitionValues": {}, "size": len(data), "modificationTime": 0}
    add_commit(tmp_path, {"add": {**add, "dataChange": True}})
    found = drain(task(tmp_path, read.committed, batch_rows=2))
    assert found.column("n") == [0, 1, 2, 6, 7, 8]
    (skipped,) = found.skipped
    assert "rows 3 to 6 cannot be read" in skipped.reason and skipped.count == 3
    assert old.exists()
