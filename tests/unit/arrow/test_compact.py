"""A slice of a batch holds no more bytes than its rows use."""

from typing import Any

import pyarrow as pa
import pytest
from support.data.every_type import every_type

from headgate_arrow import compact, rows


def words(count: int, size: int = 1000) -> Any:
    return [f"{number:05}" + "x" * size for number in range(count)]


def of(column: Any) -> Any:
    return pa.RecordBatch.from_arrays([column], ["a"])


LISTS = pa.list_(pa.list_(pa.int8()))
SHARED = {
    "dictionary": pa.array(words(500)).dictionary_encode(),
    "ordered": pa.array(words(500)).cast(pa.dictionary(pa.int16(), pa.string(), ordered=True)),
    "view": pa.array(words(500)).cast(pa.string_view()),
    "bytes": pa.array([one.encode() for one in words(500)]).cast(pa.binary_view()),
    "in a list": pa.array([[one] for one in words(500)]).cast(
        pa.list_(pa.dictionary(pa.int16(), pa.string()))
    ),
    "in a struct": pa.StructArray.from_arrays(
        [pa.array(words(500)).dictionary_encode()], names=["x"]
    ),
    "in a map": pa.array([[("k", one)] for one in words(500)], pa.map_("string", "string")).cast(
        pa.map_(pa.string(), pa.string_view())
    ),
    "lists": pa.array([[[1], [2]], None] * 20_000, LISTS),
}


@pytest.mark.parametrize("column", SHARED.values(), ids=SHARED.keys())
def test_parts_together_are_not_many_times_the_whole(column: Any) -> None:
    whole = of(column)
    size = len(rows.to_bytes(whole))
    parts = compact.parts(whole, size // 20)
    assert len(parts) > 15
    assert all(part.schema.equals(whole.schema, check_metadata=True) for part in parts)
    assert pa.Table.from_batches(parts).to_pylist() == whole.to_pylist()
    assert sum(len(rows.to_bytes(part)) for part in parts) < 1.5 * size


@pytest.mark.parametrize("column", SHARED.values(), ids=SHARED.keys())
def test_one_slice_is_written_as_its_rows_are(column: Any) -> None:
    (part,) = compact.parts(of(column).slice(100, 1), 1 << 24)
    assert len(rows.to_bytes(part)) < 3000
    assert part.to_pylist() == of(column).slice(100, 1).to_pylist()


def test_an_ordered_dictionary_keeps_its_order() -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 2, None, 3], pa.int8()), words(4)[::-1], ordered=True
    )
    (part,) = compact.parts(of(column).slice(1, 3), 1 << 24)
    assert part["a"].type == column.type
    assert part["a"].dictionary.to_pylist() == [words(4)[1], words(4)[0]]
    assert part["a"].to_pylist() == [words(4)[1], None, words(4)[0]]


def test_what_all_rows_share_is_not_parted() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), words(1, 100_000))
    assert len(compact.parts(of(column), 10_000)) == 2
    assert compact.first_part(of(column), 10_000).num_rows == 1000


def test_the_first_part_has_bytes_up_to_the_limit() -> None:
    found = compact.first_part(of(SHARED["dictionary"]), 100_000)
    assert 80 < found.num_rows < 100
    assert found.nbytes <= 100_000
    assert found.to_pylist() == of(SHARED["dictionary"]).slice(0, found.num_rows).to_pylist()


def test_every_type_is_as_it_was() -> None:
    whole = rows.record_batch(pa.table(every_type()))
    for start in range(whole.num_rows):
        one = whole.slice(start, 1)
        found = compact.compacted(one)
        assert found.schema.equals(whole.schema, check_metadata=True)
        pairs = zip(found.columns, one.columns, strict=True)
        assert all(new.equals(old) or str(new) == str(old) for new, old in pairs)  # NaN
