"""Batches of Arrow rows become records, and bytes."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.every_type import every_type
from support.data.typed_values import TYPED

from headgate.connector import schema as s
from headgate.connector.api import DataError, SkippedRecord, SourceRecord
from headgate.connector.batches import RowNumbers, RowOffsets, SinkBatch, SourceBatch
from headgate.connector.schema import Schema, validate
from headgate.connector.text_converters import TypedConverter
from headgate_arrow import arrow_types, compact, rows
from headgate_arrow.values import fault

DAY_MS = 86_400_000


def batch_of(table: Any, **more: Any) -> SourceBatch:
    columns = arrow_types.struct_schema(table.schema)
    values = rows.with_columns(table, arrow_types.arrow_schema(columns))
    count = table.num_rows
    offsets = RowOffsets({"position": range(1, count + 1)}, {"crc": 7})
    return SourceBatch({"file": "a"}, offsets, "t", values, columns, **more)


def every_row() -> Any:
    return pa.table(every_type())


def test_every_type_comes_out_of_bytes_as_it_went_in() -> None:
    batch = batch_of(every_row())
    found = rows.from_bytes(rows.to_bytes(batch.values))
    assert found.schema.equals(batch.values.schema, check_metadata=True)
    for name in found.schema.names:
        same = found[name].equals(batch.values[name])
        assert same or str(found[name]) == str(batch.values[name]), name  # NaN is not itself
    text = rows.schema_bytes(batch.value_schema)
    assert rows.schema_of(text) == batch.value_schema


def test_the_records_of_a_batch_are_those_of_its_rows() -> None:
    headers = (("file", "a"), ("at", RowNumbers(range(2))))
    batch = batch_of(every_row(), key="a", headers=headers)
    records = rows.source_records(batch)
    by_row = arrow_types.rows_of(every_row(), arrow_types.carriers(every_row().schema))
    assert [repr(one.value) for one in records if isinstance(one, SourceRecord)] == [
        repr(row) for row in by_row
    ]
    assert [one.source_offset for one in records] == [
        {"position": 1, "crc": 7},
        {"position": 2, "crc": 7},
    ]
    second = records[1]
    assert isinstance(second, SourceRecord)
    assert (second.key, second.headers) == ("a", (("file", "a"), ("at", 1)))
    again = rows.batch_of([one.value for one in records], batch.value_schema)  # type: ignore[union-attr]
    assert repr(rows.values_of(again)) == repr(rows.values_of(batch.values))


@pytest.mark.parametrize("start", [0, 1])
def test_values_of_records_are_what_the_converter_would_have_written(start: int) -> None:
    batch = batch_of(every_row())
    found = rows.typed_values(
        rows.schema_bytes(batch.value_schema), rows.to_bytes(batch.values), start, 2
    )
    converter = TypedConverter()
    assert found == [
        converter.from_connect("t", record.value, record.value_schema)
        for record in rows.source_records(batch)[start:]
        if isinstance(record, SourceRecord)
    ]


@settings(max_examples=60, deadline=None)
@given(TYPED.flatmap(lambda one: st.tuples(st.just(one[0]), st.lists(one[1], max_size=4))))
def test_generated_values_come_back_or_are_refused(given: tuple[Schema, list[Any]]) -> None:
    schema, values = given
    struct = s.struct({"v": schema})
    values = [{"v": value} for value in values]
    try:
        batch = rows.batch_of(values, struct)
    except DataError as error:
        assert "column v" in str(error)
        return
    stored = rows.to_bytes(batch)
    found = rows.values_of(rows.from_bytes(stored))
    assert fault(batch) is None
    texts = rows.typed_values(rows.schema_bytes(struct), stored, 0, len(values))
    assert [_plain(TypedConverter().to_connect("t", text)) for text in texts] == [
        _plain(row) for row in found
    ]
    for before, after in zip(values, found, strict=True):
        validate(struct, after)
        assert _plain(after) == _plain(before)


def _plain(value: Any) -> Any:
    """A missing field is a null, 1 and 1.0 are one number."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


BAD = {
    "time_ms": pa.array([25 * 3_600_000], pa.int32()).view(pa.time32("ms")),
    "before_midnight": pa.array([-1], pa.int32()).view(pa.time32("ms")),
    "time_us": pa.array([DAY_MS * 1000], pa.int64()).view(pa.time64("us")),
    "day": pa.array([2_932_897], pa.int32()).view(pa.date32()),
    "at": pa.array([-62_135_596_800_001]).view(pa.timestamp("ms", "UTC")),
    "text": pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    ),
    "twice": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())),
    "in_list": pa.array([[2_932_897]], pa.list_(pa.int32())).cast(pa.list_(pa.int32())),
}
BAD["in_list"] = pa.ListArray.from_arrays([0, 1], BAD["day"])
BAD["in_map"] = pa.MapArray.from_arrays([0, 1], ["k"], BAD["time_ms"])
BAD["in_dictionary"] = pa.DictionaryArray.from_arrays([0], BAD["text"])
BAD["in_struct"] = pa.StructArray.from_arrays([BAD["time_ms"]], names=["inner"])


NOTHING = pa.array([None], pa.int32())
_FIELDS = [pa.field("x", pa.int32(), nullable=False)]
NULLS = {
    "in_struct": pa.StructArray.from_arrays([NOTHING], fields=_FIELDS),
    "in_list": pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()), NOTHING, type=pa.list_(_FIELDS[0])
    ),
    "in_map": pa.MapArray.from_arrays(
        pa.array([0, 1], pa.int32()),
        ["k"],
        NOTHING,
        type=pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    ),
}


@pytest.mark.parametrize("name", NULLS)
def test_a_null_where_none_is_taken_is_a_bad_row(name: str) -> None:
    """The row's converter refuses such a row, so the log must not have it in a batch."""
    good = pa.nulls(1, NULLS[name].type)
    table = pa.table({name: pa.chunked_array([good, NULLS[name], good])})
    records = rows.source_records(batch_of(table))
    assert [type(one) for one in records] == [SourceRecord, SkippedRecord, SourceRecord]
    assert isinstance(records[1], SkippedRecord)
    assert "a null where it takes none" in records[1].reason


def test_a_null_in_a_required_column_is_a_bad_row() -> None:
    columns = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    table = pa.Table.from_arrays([pa.array([1, None, 3])], schema=columns)
    records = rows.source_records(batch_of(table))
    assert [type(one) for one in records] == [SourceRecord, SkippedRecord, SourceRecord]


@pytest.mark.parametrize("name", BAD)
def test_a_value_without_a_form_is_a_bad_row_and_named(name: str) -> None:
    good = pa.nulls(1, BAD[name].type)
    table = pa.table({name: pa.chunked_array([good, BAD[name], good])})
    assert (fault(table) or "").startswith(f"column {name} of type ")
    records = rows.source_records(batch_of(table))
    assert [type(one) for one in records] == [SourceRecord, SkippedRecord, SourceRecord]
    assert isinstance(records[1], SkippedRecord)
    assert f"column {name}" in records[1].reason
    assert records[1].source_offset == {"position": 2, "crc": 7}


def test_the_last_values_that_have_a_form() -> None:
    table = pa.table(
        {
            "time": pa.array([0, DAY_MS - 1], pa.int32()).view(pa.time32("ms")),
            "day": [datetime.date.min, datetime.date.max],
            "at": pa.array([-62_135_596_800_000, 253_402_300_799_999]).view(
                pa.timestamp("ms", "UTC")
            ),
        }
    )
    assert fault(table) is None
    assert [type(one) for one in rows.source_records(batch_of(table))] == [SourceRecord] * 2


def test_a_null_struct_whose_fields_have_no_nulls_is_null() -> None:
    day = pa.array([2_932_897, 1, 2], pa.int32()).view(pa.date32())  # one is hidden by the null
    time = pa.array([DAY_MS, 0, -1], pa.int32()).view(pa.time32("ms"))
    fields = [
        pa.field("day", day.type, nullable=False),
        pa.field("time", time.type, nullable=False),
    ]
    mask = pa.array([True, False, True])
    struct = pa.StructArray.from_arrays([day, time], fields=fields, mask=mask)
    batch = batch_of(pa.table({"s": struct}))
    second = {"day": datetime.date(1970, 1, 2), "time": datetime.time()}
    expected = [{"s": None}, {"s": second}, {"s": None}]
    assert fault(batch.values) is None
    stored = rows.from_bytes(rows.to_bytes(batch.values.slice(0, 3)))
    assert rows.values_of(stored) == expected
    sink = SinkBatch("t", 0, 5, stored, batch.value_schema)
    assert [one.value for one in rows.sink_records(sink)] == expected
    assert [one.value for one in rows.source_records(batch)] == expected  # type: ignore[union-attr]


def fixed(kind: Any) -> Any:
    """Two of `kind`, none of which may be null."""
    return pa.list_(pa.field("item", kind, nullable=False), 2)


def required(kind: Any) -> Any:
    return pa.struct([pa.field("a", kind, nullable=False)])


MICROS = pa.timestamp("us")
TWICE = fixed(pa.int32())
HIDING: list[tuple[Any, Any]] = [
    (TWICE, [1, 2]),
    (fixed(MICROS), [1, 2]),
    (fixed(pa.string_view()), ["a", "b"]),
    (fixed(pa.binary(2)), [b"ab", b"cd"]),
    (fixed(TWICE), [[1, 2], [3, 4]]),
    (fixed(required(TWICE)), [{"a": [1, 2]}, {"a": [3, 4]}]),
    (fixed(pa.map_(pa.string(), TWICE)), [[("a", [1, 2])], [("b", None)]]),
    (pa.list_(TWICE), [[1, 2], None]),
    (pa.map_(pa.string(), TWICE), [("a", [1, 2]), ("b", None)]),
    (pa.struct([("f", TWICE), ("t", MICROS)]), {"f": None, "t": 1}),
    (required(TWICE), {"a": [1, 2]}),
    (required(pa.binary(2)), {"a": b"ab"}),
    (required(MICROS), {"a": 1}),
    (pa.binary(2), b"ab"),
]
"""Where they are null Arrow keeps room for what takes no null."""


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize(("kind", "value"), HIDING, ids=lambda one: str(one)[:40])
def test_a_null_that_has_room_for_required_values_stays_a_null(
    kind: Any, value: Any, start: int
) -> None:
    table = pa.table({"v": pa.array([value, None, value], kind), "t": pa.array([1, 2, 3], MICROS)})
    batch = batch_of(table.slice(start, 2))
    found = rows.source_records(batch)
    assert [type(one) for one in found] == [SourceRecord] * 2
    values = [one.value for one in found if isinstance(one, SourceRecord)]
    assert [one["v"] is None for one in values] == [start == 1, start == 0]
    for one in values:
        validate(batch.value_schema, one)
    again = rows.batch_of(values, batch.value_schema)
    again.validate(full=True)
    assert again.equals(batch.values)


@pytest.mark.parametrize("kind", [pa.int32(), MICROS])
def test_a_null_is_not_made_where_none_is_taken(kind: Any) -> None:
    item = pa.field("item", kind, nullable=False)
    for outer, value in (
        (pa.list_(item), [1, None]),
        (pa.large_list(item), [1, None]),
        (fixed(kind), [1, None]),
        (fixed(fixed(kind)), [[1, 2], None]),
        (required(kind), {"a": None}),
        (pa.map_(pa.string(), item), {"k": None}),
        (pa.list_(fixed(kind)), [[1, 2], [None, 4]]),
    ):
        schema = arrow_types.struct_schema(pa.schema([("v", outer)]))
        with pytest.raises(DataError, match=r"column v of type .*null.* (none|non-nullable)"):
            rows.batch_of([{"v": None}, {"v": value}], schema)


def test_parts_of_a_batch_have_bytes_up_to_the_limit() -> None:
    batch = batch_of(pa.table({"n": range(1000), "text": ["x" * 1000] * 999 + ["y" * 50_000]}))
    parts = compact.parts(batch.values, 20_000)
    assert pa.Table.from_batches(parts).to_pylist() == batch.values.to_pylist()
    sizes = [(part.num_rows, len(rows.to_bytes(part))) for part in parts]
    assert all(size < 22_000 for count, size in sizes if count > 1)
    assert sizes[-1][0] == 1


def test_columns_that_are_not_those_of_the_schema_are_refused() -> None:
    batch = batch_of(pa.table({"n": [1, 2]}))
    rows.check_columns(batch)
    batch.values = batch.values.cast(pa.schema([("n", pa.int32())]))
    with pytest.raises(TypeError, match=r"columns n int32; its value schema says n int64"):
        rows.check_columns(batch)
    batch = batch_of(pa.table({"n": [1, 2]}), headers=(("at", RowNumbers(range(3))),))
    with pytest.raises(TypeError, match="a SourceBatch of 2 rows has 3 header at"):
        rows.check_columns(batch)


def test_offsets_of_rows_and_of_parts() -> None:
    offsets = RowOffsets({"position": range(10, 20), "start": [*range(10)]}, {"crc": 1})
    assert len(offsets) == 10
    assert offsets[-1] == {"position": 19, "start": 9, "crc": 1}
    assert list(offsets[2:4]) == [
        {"position": 12, "start": 2, "crc": 1},
        {"position": 13, "start": 3, "crc": 1},
    ]
    with pytest.raises(ValueError, match=r"offsets of \[1, 2\] rows"):
        RowOffsets({"a": [1], "b": [1, 2]})


def test_columns_of_a_folder() -> None:
    values = rows.record_batch(pa.table({"n": [1]}))
    columns = pa.schema([("m", pa.string()), ("n", pa.int64())])
    assert rows.same_columns(values, columns).to_pylist() == [{"m": None, "n": 1}]
    with pytest.raises(DataError, match="column n is of type int64, expected"):
        rows.same_columns(values, pa.schema([("n", pa.int32())]))
    nulls = rows.record_batch(pa.table({"n": pa.array([None], pa.int64())}))
    needed = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert rows.same_columns(values, needed).schema == needed
    for without in (nulls, rows.record_batch(pa.table({"m": [1]}))):
        with pytest.raises(DataError, match=r"column n .*expected .*not null"):
            rows.same_columns(without, needed)


def test_a_part_of_a_batch_has_the_headers_of_its_rows() -> None:
    headers = (("file", "a"), ("at", RowNumbers(range(10, 15))))
    source = batch_of(pa.table({"n": range(5)}), headers=headers)
    sink = SinkBatch("t", 0, 7, source.values, source.value_schema, headers=headers)
    expected = (("file", "a"), ("at", RowNumbers(range(12, 14))))
    assert source.part(2, 2).headers == sink.part(2, 2).headers == expected
    assert [one.headers for one in rows.source_records(source.part(2, 2))] == [  # type: ignore[union-attr]
        (("file", "a"), ("at", 12)),
        (("file", "a"), ("at", 13)),
    ]
