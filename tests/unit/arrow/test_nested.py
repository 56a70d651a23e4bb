"""Arrow dictionaries with nulls: nulls among their values, and codes that a null hides."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from support.data.arrow_batches import rows_with_schema

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.batches import RowOffsets, SourceBatch
from headgate.connector.converters import task_converters
from headgate.connector.json_converter import JsonConverter
from headgate.connector.transforms.columns import Computed
from headgate_arrow import arrow_types, rows
from headgate_arrow.computed_columns import alike
from headgate_arrow.json_columns import JsonColumns
from headgate_arrow.nested import has_odd_codes
from headgate_arrow.values import fault
from headgate_runtime.tasks.source_batches import ReadyBatch, SourceBatches

WORDS = pa.dictionary(pa.int8(), pa.string())
ROW = pa.struct([pa.field("d", WORDS)])
REQUIRED = pa.struct([pa.field("d", WORDS, nullable=False)])
HIDDEN: list[tuple[Any, list[Any]]] = [
    (ROW, [None, {"d": None}]),
    (REQUIRED, [None, None]),
    (pa.struct([pa.field("s", ROW)]), [None, {"s": None}, {"s": {"d": None}}]),
    (pa.list_(ROW), [[None, {"d": None}], None, []]),
    (pa.large_list(ROW), [None, [None]]),
    (pa.list_(ROW, 1), [[None], None, [{"d": None}]]),
    (pa.map_(pa.string(), ROW), [[("a", None)], None, [("b", {"d": None}), ("c", None)]]),
]
"""The words are none, so each code that a null hides is wrong."""


def batch_of(*arrays: Any, nullable: bool = True) -> Any:
    fields = [pa.field(f"v{at}", one.type, nullable) for at, one in enumerate(arrays)]
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))


def source_batch(values: Any) -> SourceBatch:
    offsets = RowOffsets({"position": range(values.num_rows)})
    return SourceBatch({}, offsets, "t", values, arrow_types.struct_schema(values.schema))


def plain(value: Any) -> Any:
    """Maps are dicts."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: plain(one) for key, one in value}
    return value


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize(("kind", "values"), HIDDEN, ids=lambda one: str(one)[:40])
def test_a_code_that_a_null_hides_harms_no_value(kind: Any, values: list[Any], start: int) -> None:
    batch = batch_of(pa.array(values, kind)).slice(start)
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        batch_of(pa.array(values, kind)).validate(full=True)
    expected = [{"v0": plain(one)} for one in values[start:]]
    assert fault(batch) is None
    assert rows.values_of(batch) == expected
    assert rows.values_of(rows.from_bytes(rows.to_bytes(batch))) == expected
    found = rows.source_records(source_batch(batch))
    assert [one.value for one in found if isinstance(one, SourceRecord)] == expected


@pytest.mark.parametrize("kept", [True, False])
def test_such_a_batch_goes_record_by_record(kept: bool) -> None:
    """A sink may cast it, which Arrow refuses."""
    made = task_converters({} if kept else {"value.converter": "JsonConverter"}, {})
    batches = SourceBatches(made)
    batches.flow, batches.kept = True, kept
    odd = batch_of(pa.array([None, {"d": None}], ROW))
    found = batches.prepared([source_batch(odd)])
    assert [type(one) for one in found] == [SourceRecord] * 2
    usual = batch_of(pa.array([None, {"d": "a"}], ROW))
    (ready,) = batches.prepared([source_batch(usual)])
    assert isinstance(ready, ReadyBatch)


def null_word() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), [None, "a"])


def test_a_null_among_the_words_is_a_null() -> None:
    array = null_word()
    assert array.null_count == 1  # as Arrow counts
    batch = batch_of(array)
    assert has_odd_codes(batch)
    assert rows.values_of(batch) == [{"v0": None}, {"v0": "a"}, {"v0": None}]
    masked = alike(array, Computed("v0", lambda _: "***", target=None, alike=True), pa.string())
    assert masked.to_pylist() == [None, "***", None]
    schema = arrow_types.struct_schema(batch.schema)
    converter = JsonConverter()
    expected = [converter.from_connect("t", row, schema) for row in rows.values_of(batch)]
    assert JsonColumns(schema, converter.form(schema)).values(batch) == expected


@pytest.mark.parametrize("inside", [True, False])
def test_a_null_among_the_words_of_a_required_column_is_a_bad_row(inside: bool) -> None:
    array = null_word().slice(0, 2)
    if inside:
        array = pa.StructArray.from_arrays([array], fields=list(REQUIRED))
    batch = source_batch(batch_of(array, nullable=inside))
    found = rows.source_records(batch)
    assert [type(one) for one in found] == [SkippedRecord, SourceRecord]


def test_a_code_without_a_word_is_a_bad_row() -> None:
    codes = pa.array([0, 7], pa.int8())
    array = pa.DictionaryArray.from_arrays(codes, ["a"], safe=False)
    found = rows.source_records(source_batch(batch_of(array)))
    assert [type(one) for one in found] == [SourceRecord, SkippedRecord]
    assert isinstance(found[1], SkippedRecord)
    assert "the codes 7 to 7 of a dictionary of 1 words" in found[1].reason


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows_with_schema())
def test_rows_are_the_same_one_by_one_and_through_a_log(drawn: Any) -> None:
    values, found, schema = drawn
    each = [row for at in range(len(found)) for row in rows.values_of(values.slice(at, 1))]
    stored = rows.from_bytes(rows.to_bytes(values))
    made = rows.batch_of(found, schema)
    for other in (each, rows.values_of(stored), rows.values_of(made)):
        assert repr(other) == repr(found)
