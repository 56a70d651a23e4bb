"""The task of DeltaSink, driven by hand: batches, two writers, keys, and types."""

import datetime
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.config import ConfigError
from headgate.connector.transforms import make_transforms
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types
from headgate_connectors.delta_sink import DeltaSink, DeltaSinkTask
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"n": s.INT64, "price": s.decimal_of(2, 10).as_optional()})
PLACE = ("t", 0)


def task(
    folder: Path, by_group: int = 0, *, reports: bool = False, **settings: Any
) -> DeltaSinkTask:
    made = DeltaSinkTask()
    made.context = FakeSinkContext(
        committed={PLACE: by_group} if by_group else None, reports=reports
    )
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    path = str(folder / "table")
    made.start({"name": "sink", "path": path, "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def record(offset: int, value: Any, schema: Schema | None = ROW, **more: Any) -> SinkRecord:
    given = SinkRecord("t", more.pop("partition", 0), offset, None, value, (), 0, None, schema)
    for name, found in more.items():
        setattr(given, name, found)
    return given


def rows(*numbers: int) -> list[SinkRecord]:
    return [record(n, {"n": n, "price": Decimal(n)}) for n in numbers]


def read(folder: Path) -> list[dict[str, Any]]:
    return DeltaTable(folder / "table").to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]


def numbers(folder: Path) -> list[int]:
    return sorted(row["n"] for row in read(folder))


def test_batches_are_committed_by_records_and_the_last_when_it_stops(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=3)
    for start in range(0, 8, 2):
        subject.put(rows(start, start + 1))
    assert numbers(tmp_path) == list(range(8))
    subject.put(rows(8))
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 8}
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 9}
    assert numbers(tmp_path) == list(range(9))
    table = DeltaTable(tmp_path / "table")
    assert table.transaction_version("headgate-sink/t-0") == 9
    assert table.version() == 3, "the creation, and one commit for each batch"


def test_it_goes_on_where_the_table_ends(tmp_path: Path) -> None:
    task(tmp_path, rotate_records=2).put(rows(0, 1, 2))
    first = task(tmp_path, rotate_records=2)
    assert first.context.seeks == {PLACE: 3}  # type: ignore[attr-defined]
    first.put(rows(3))
    first.close([PLACE])
    second = task(tmp_path, rotate_records=2)
    second.put(rows(3, 4))
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_a_zombie_with_a_stale_view_is_refused(tmp_path: Path) -> None:
    """The task has looked at the table, was frozen, and commits after another task has. delta-rs
    refuses the commit."""
    task(tmp_path, rotate_records=1).put(rows(0))
    late, owner = task(tmp_path, rotate_records=2), task(tmp_path, rotate_records=2)
    target = late._target
    target.read()
    target.read = lambda: None  # type: ignore[method-assign]
    owner.put(rows(1, 2))
    with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
        late.put(rows(1, 2))
    assert numbers(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("keys", [{}, {"write_mode": "upsert", "key_columns": "n"}])
def test_a_zombie_that_looks_again_drops_what_it_has(tmp_path: Path, keys: Any) -> None:
    late = task(tmp_path, rotate_records=4, **keys)
    owner = task(tmp_path, rotate_records=2, **keys)
    late.put(rows(0, 1))
    owner.put(rows(0, 1))
    late.put(rows(2, 3))
    assert late.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    assert late.pre_commit({PLACE: 4}) == {PLACE: 2}
    assert numbers(tmp_path) == [0, 1]
    late.put(rows(2, 3, 4, 5))
    assert numbers(tmp_path) == list(range(6))


def test_a_foreign_commit_in_between_costs_nothing(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    path = tmp_path / "table"
    there = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, there.set_column(0, "n", pa.array([100])), mode="append")
    subject.put(rows(1))
    assert numbers(tmp_path) == [0, 1, 100]


def test_a_table_that_was_made_anew_is_told(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"knows nothing of t-0, but .* up to offset 7"):
        task(tmp_path, by_group=7)
    accepted = task(tmp_path, by_group=7, on_missing_output="accept", rotate_records=1)
    assert "knows nothing" in accepted.context.logged[0]  # type: ignore[attr-defined]
    accepted.put(rows(7))
    assert numbers(tmp_path) == [7]


def test_a_table_that_is_dropped_while_the_task_runs_is_told(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    shutil.rmtree(tmp_path / "table")
    with pytest.raises(TableError, match=r"does not go on where it was .* Put it back"):
        subject.put(rows(1))
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))


def test_a_topic_that_was_made_anew_is_told(tmp_path: Path) -> None:
    task(tmp_path, rotate_records=1).put(rows(0, 1, 2))
    subject = task(tmp_path, rotate_records=1)
    with pytest.raises(TableError, match=r"t-0 gives offset 0, but the table has its .* offset 3"):
        subject.put(rows(0))


# -- columns --


def test_a_column_has_one_type(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    with pytest.raises(DataError, match="offset 1: column n is of type double, expected int64"):
        subject.put([record(1, {"n": 1.5}, s.struct({"n": s.FLOAT64}))])
    assert numbers(tmp_path) == [0]


def test_new_columns_are_refused_or_added_as_declared(tmp_path: Path) -> None:
    more = s.struct({"n": s.INT64, "more": s.STRING})
    subject = task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    with pytest.raises(DataError, match=r"column more .* schema.evolution = add_columns"):
        subject.put([record(1, {"n": 1, "more": "x"}, more)])
    adding = task(tmp_path, rotate_records=1, schema_evolution="add_columns")
    adding.put([record(1, {"n": 1, "more": "x"}, more)])
    adding.put(rows(2))
    assert sorted((row["n"], row["more"], row["price"]) for row in read(tmp_path)) == [
        (0, None, Decimal(0)),
        (1, "x", None),
        (2, None, Decimal(2)),
    ]
    local = s.struct({"at": arrow_types.field_schema(pa.field("", pa.timestamp("us")), "at")})
    adding.put([record(3, {"at": 5}, local)])
    assert datetime.datetime(1970, 1, 1, 0, 0, 0, 5) in [row["at"] for row in read(tmp_path)]


def test_a_column_has_one_spelling(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=1, schema_evolution="add_columns")
    subject.put(rows(0))
    with pytest.raises(DataError, match="column N is spelt n in the table"):
        subject.put([record(1, {"N": 1}, s.struct({"N": s.INT64}))])
    with pytest.raises(DataError, match="'a b': Delta allows no"):
        subject.put([record(1, {"a b": 1}, s.struct({"a b": s.INT64}))])
    with pytest.raises(DataError, match="x and X differ in case alone"):
        subject.put([record(1, {"x": 1, "X": 1}, s.struct({"x": s.INT64, "X": s.INT64}))])


# -- keys --


def test_rows_are_updated_and_deleted_by_their_key(tmp_path: Path) -> None:
    subject = task(tmp_path, write_mode="upsert", key_columns="Id", rotate_records=1)
    row = s.struct({"Id": s.INT64, "v": s.STRING.as_optional()})

    def change(offset: int, key: int, value: str | None, delete: bool = False) -> SinkRecord:
        given = None if delete else {"Id": key, "v": value}
        return record(offset, given, row, key=key, key_schema=s.INT64)

    subject.put([change(0, 9, None, delete=True)])  # there is no table yet
    subject.put([change(1, 1, "a"), change(2, 2, "b"), change(3, 1, "c")])
    subject.put([change(4, 2, None, delete=True), change(5, 3, None), change(6, 4, "x")])
    subject.put([change(7, 4, None, delete=True), change(8, 4, "again")])
    subject.put([change(9, 3, "z"), change(10, 3, None, delete=True)])
    assert sorted((one["Id"], one["v"]) for one in read(tmp_path)) == [(1, "c"), (4, "again")]
    struct = s.struct({"Id": s.INT64, "other": s.STRING})
    last = record(11, None, None, key={"Id": 1, "other": "?"}, key_schema=struct)
    subject.put([last])
    assert [one["Id"] for one in read(tmp_path)] == [4]


def test_keys_that_cannot_be_found_again_are_refused(tmp_path: Path) -> None:
    row = s.struct({"id": s.INT64.as_optional(), "f": s.FLOAT64.as_optional()})
    subject = task(tmp_path, write_mode="upsert", key_columns="id", rotate_records=1)
    with pytest.raises(DataError, match="offset 0 has null in column id"):
        subject.put([record(0, {"id": None}, row)])
    with pytest.raises(DataError, match="offset 0 has no column id"):
        subject.put([record(0, {"n": 1}, ROW)])
    with pytest.raises(DataError, match="neither a key nor a value"):
        subject.put([record(0, None)])
    subject.put([record(0, {"id": 1}, row)])
    with pytest.raises(DataError, match="column id is of type string, expected int64"):
        subject.put([record(1, None, None, key="1", key_schema=s.STRING)])
    other = task(tmp_path, write_mode="upsert", key_columns="f", rotate_records=1)
    with pytest.raises(DataError, match=r"column f of key.columns is of type double"):
        other.put([record(1, {"f": 1.0}, row)])
    both = task(tmp_path, write_mode="upsert", key_columns="id", rotate_records=2)
    both.open([("t", 1)])
    with pytest.raises(DataError, match="is in t-0 and t-1, so which of its rows is the last"):
        both.put([record(1, {"id": 5}, row), record(0, {"id": 5}, row, partition=1)])


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    found = DeltaSink.validate({"path": "s3://x/y", "write.mode": "upsert"})
    assert set(found) == {"path", "key.columns"}
    assert "key.columns" in DeltaSink.validate({"path": "x", "key.columns": "id"})
    with pytest.raises(ConfigError, match="are those in its table"):
        DeltaSink.alter_offsets({}, {PLACE: 1})


# -- types --

EVERY = {
    "bool": pa.array([True, None]),
    "int8": pa.array([-128, None], pa.int8()),
    "uint8": pa.array([255, None], pa.uint8()),
    "uint16": pa.array([65535, None], pa.uint16()),
    "uint32": pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "int64": pa.array([-(2**63), None]),
    "float16": pa.array([1.5, None], pa.float16()),
    "float32": pa.array([0.1, None], pa.float32()),
    "float64": pa.array([-0.0, float("inf")]),
    "text": pa.array(["\u00e9\x00\U0001f600", None]),
    "empty": pa.array(["", None]),
    "bytes": pa.array([b"\x00\xff", None]),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "decimal38": pa.array([Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
    "date": pa.array([datetime.date(9999, 12, 31), None]),
    "at_ms": pa.array([-1, None], pa.timestamp("ms")),
    "at_us": pa.array([2**55, None], pa.timestamp("us")),
    "at_ns": pa.array([1_704_067_200_123_456_000, None], pa.timestamp("ns")),
    "utc": pa.array([1_704_067_200_123, None], pa.timestamp("ms", "UTC")),
    "zone": pa.array([1_704_067_200_123_456_000, None], pa.timestamp("ns", "America/New_York")),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "nested": pa.array([[[Decimal("1.1")]], []], pa.list_(pa.list_(pa.decimal128(5, 1)))),
    "map": pa.array([[("k", 5000)], None], pa.map_(pa.string(), pa.timestamp("ns"))),
    "struct": pa.array(
        [{"x": 0.1, "y": [b"z"], "z": {"w": 3}}, None],
        pa.struct([("x", pa.float32()), ("y", pa.list_(pa.binary())),
                   ("z", pa.struct([("w", pa.uint8())]))]),
    ),
    "word": pa.array(["a", None]).dictionary_encode(),
}  # fmt: skip


def test_values_of_every_type_come_out_equal(tmp_path: Path) -> None:
    given = pa.table(EVERY)
    schema = arrow_types.struct_schema(given.schema)
    by_way = arrow_types.carriers(given.schema)
    values = arrow_types.rows_of(given, by_way)
    subject = task(tmp_path, rotate_records=1)
    subject.put([record(n, value, schema) for n, value in enumerate(values)])
    found = DeltaTable(tmp_path / "table").to_pyarrow_table()
    for name in given.schema.names:
        was, now = given.column(name), found.column(name)
        assert now.cast(was.type).to_pylist() == was.to_pylist(), name
    assert found.schema.field("zone").type == pa.timestamp("us", "UTC")
    assert found.schema.field("at_ns").type == pa.timestamp("us")
    assert json.dumps(str(found.schema.field("uint64").type)) == '"decimal128(20, 0)"'


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (pa.time64("us"), 1, "column c is of type time64.us., which Delta has no type for"),
        (pa.duration("ns"), 1, "column c is of type duration"),
        (pa.decimal256(60, 2), Decimal(1), "column c is of type decimal256"),
        (pa.timestamp("ns"), 1, r"column c of .*lose data.* nanoseconds.*Cast with spec = c:int64"),
        (pa.list_(pa.timestamp("ns")), [1], r"column c of .*lose data.*nanoseconds.*ReplaceField"),
        (pa.list_(pa.time64("ns")), [1], r"column c\[\] is of type time64"),
        (pa.struct([]), {}, "column c is of type struct<>"),
    ],
)
def test_a_value_that_delta_has_no_type_for_is_refused_by_name(
    tmp_path: Path, kind: Any, value: Any, why: str
) -> None:
    subject = task(tmp_path, rotate_records=1)
    schema = s.struct({"c": arrow_types.field_schema(pa.field("c", kind), "c")})
    with pytest.raises(DataError, match=why):
        subject.put([record(0, {"c": value}, schema)])
    assert not (tmp_path / "table").exists()


def test_an_empty_text_in_a_partition_column_is_refused_as_delta_reads_it_as_null(
    tmp_path: Path,
) -> None:
    schema = s.struct({"n": s.INT64, "k": s.STRING.as_optional(), "b": s.STRING.as_optional()})
    for settings in ({"partition_by": "k,b"}, {}):  # the table knows it, too
        subject = task(tmp_path, **settings, reports=True)
        subject.put([])
        start = 5 * (not settings)
        values = [("x", "x"), ("", "x"), (None, "x"), ("x", ""), ("x", None)]
        subject.put(
            [record(start + n, {"n": start + n, "k": k, "b": b}, schema)
             for n, (k, b) in enumerate(values)]
        )  # fmt: skip
        assert isinstance(subject.context, FakeSinkContext)
        assert [one.offset - start for one, _ in subject.context.reported] == [1, 3]
        text = f"t-0 offset {start + 1}: column k of partition.by has an empty text, which Delta"
        assert text in str(subject.context.reported[0][1])
        subject.context.stopping = True
        subject.pre_commit({PLACE: start + 5})
        subject.stop()
    assert numbers(tmp_path) == [0, 2, 4, 5, 7, 9]
    assert sorted(row["n"] for row in read(tmp_path) if row["k"] is None) == [2, 7]


def test_nanoseconds_are_kept_by_the_transform_that_the_error_advises(tmp_path: Path) -> None:
    at = arrow_types.field_schema(pa.field("at", pa.timestamp("ns", "UTC")), "at")
    given = record(0, {"at": 1_704_067_200_123_456_789}, s.struct({"at": at}))
    (cast,) = make_transforms(
        {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "at:int64"}
    )
    subject = task(tmp_path, rotate_records=1)
    found = cast.apply_sink(given)
    assert found is not None
    subject.put([found])
    assert read(tmp_path) == [{"at": 1_704_067_200_123_456_789}]


def test_records_that_the_table_cannot_take_are_reported_and_the_others_written(
    tmp_path: Path,
) -> None:
    subject = task(tmp_path, reports=True)
    subject.put([])
    assert isinstance(subject.context, FakeSinkContext)
    large = Decimal(10) ** 12
    subject.put(
        [
            record(0, {"n": 0, "price": Decimal(0)}),
            record(1, {"n": 1, "price": large}),
            record(2, {"n": "x"}, s.struct({"n": s.STRING})),
            record(3, None, None),
            record(4, {"n": 4, "price": Decimal(4)}),
        ]
    )
    assert sorted(one.offset for one, _ in subject.context.reported) == [1, 2, 3]
    for one, error in subject.context.reported:
        assert f"the value at t-0 offset {one.offset}" in str(error)
    subject.context.stopping = True
    assert subject.pre_commit({PLACE: 5}) == {PLACE: 5}
    assert sorted(numbers(tmp_path)) == [0, 4]
