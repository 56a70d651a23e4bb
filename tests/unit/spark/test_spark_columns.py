import itertools

import pyarrow as pa
import pytest

from headgate_spark import columns as cols

TYPES = (pa.decimal128(10, 2), pa.date32(), pa.timestamp("us"), pa.list_(pa.binary()),
         pa.struct([("a", pa.map_(pa.string(), pa.int8()))]))  # fmt: skip
KINDS = (
    cols.NULL,
    cols.BOOLEAN,
    cols.INTEGER,
    cols.LONG,
    cols.FLOAT,
    cols.DOUBLE,
    cols.STRING,
    *map(cols.typed_kind, TYPES),
)


def test_uniting_is_commutative_associative_and_idempotent() -> None:
    for a, b, c in itertools.product(KINDS, repeat=3):
        assert cols.unite(a, b) == cols.unite(b, a)
        assert cols.unite(a, cols.unite(b, c)) == cols.unite(cols.unite(a, b), c)
        assert cols.unite(a, a) == a


def test_what_fits_a_column_leaves_its_type_whatever_else_came_before() -> None:
    for pinned, a, b in itertools.product(KINDS, repeat=3):
        if pinned != cols.NULL and cols.fits(a, pinned) and cols.fits(b, pinned):
            both = cols.unite(cols.unite(pinned, a), b)
            assert cols.arrow_type(both) == cols.arrow_type(pinned)
    assert not cols.fits(cols.STRING, cols.INTEGER)
    assert all(cols.fits(kind, cols.STRING) for kind in KINDS)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_kinds_of_schemas_are_known_by_their_text(kind: pa.DataType) -> None:
    assert cols.written_type(kind) == kind
    assert cols.arrow_type(cols.typed_kind(kind)) == kind


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.decimal256(38, 3), pa.decimal128(38, 3)),
        (pa.decimal256(39, 3), None),
        (pa.uint64(), None),
        (pa.timestamp("ns"), None),
        (pa.time32("ms"), None),
        (pa.duration("s"), None),
        (pa.list_(pa.time64("us")), None),
        (pa.struct([]), None),
    ],
    ids=str,
)
def test_what_spark_does_not_read_is_written_otherwise(
    kind: pa.DataType, written: pa.DataType | None
) -> None:
    assert cols.written_type(kind) == written


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], cols.NULL),
        ([None, None], cols.NULL),
        ([True, None], cols.BOOLEAN),
        ([1, -(2**53), None], cols.INTEGER),
        ([1, 2**53 + 1], cols.LONG),
        ([-(2**63), 2**63 - 1], cols.LONG),
        ([2**63], cols.STRING),
        ([1, 1.5], cols.DOUBLE),
        ([2**53 + 1, 1.5], cols.STRING),
        ([True, 1], cols.STRING),
        (["a", 1], cols.STRING),
        ([{"a": 1}], cols.STRING),
        ([[1], None], cols.STRING),
    ],
)
def test_kinds_hold_their_values(values: list[object], kind: str) -> None:
    assert cols.kind_of(values) == kind
    array = cols.to_arrow(values, kind).to_pylist()
    assert array == ([cols.as_text(value) for value in values] if kind == cols.STRING else values)


def test_other_values_become_json_text() -> None:
    values = ["as is", 1, 1.5, True, {"a": [1, None]}, 10**30, None]
    texts = ["as is", "1", "1.5", "true", '{"a":[1,null]}', "1" + "0" * 30, None]
    assert [cols.as_text(value) for value in values] == texts


def test_columns_keep_the_order_of_first_sight() -> None:
    united = cols.unite_columns(
        [
            {"b": cols.INTEGER, "a": cols.NULL},
            {"c": cols.STRING, "b": cols.DOUBLE, "a": cols.BOOLEAN},
        ]
    )
    assert list(united.items()) == [("b", cols.DOUBLE), ("a", cols.BOOLEAN), ("c", cols.STRING)]
