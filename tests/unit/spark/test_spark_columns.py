import itertools

import pyarrow as pa
import pytest

from headgate_spark.columns import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    NULL,
    STRING,
    arrow_type,
    as_text,
    fits,
    kind_of,
    to_arrow,
    typed_kind,
    unite,
    unite_columns,
    written_type,
)

TYPES = (pa.decimal128(10, 2), pa.date32(), pa.timestamp("us"), pa.list_(pa.binary()),
         pa.struct([("a", pa.map_(pa.string(), pa.int8()))]))  # fmt: skip
KINDS = (NULL, BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE, STRING, *map(typed_kind, TYPES))


def test_uniting_is_commutative_associative_and_idempotent() -> None:
    for a, b, c in itertools.product(KINDS, repeat=3):
        assert unite(a, b) == unite(b, a)
        assert unite(a, unite(b, c)) == unite(unite(a, b), c)
        assert unite(a, a) == a


def test_what_fits_a_column_leaves_its_type_whatever_else_came_before() -> None:
    for pinned, a, b in itertools.product(KINDS, repeat=3):
        if pinned != NULL and fits(a, pinned) and fits(b, pinned):
            both = unite(unite(pinned, a), b)
            assert arrow_type(both) == arrow_type(pinned)
    assert not fits(STRING, INTEGER)
    assert all(fits(kind, STRING) for kind in KINDS)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_kinds_of_schemas_are_known_by_their_text(kind: pa.DataType) -> None:
    assert written_type(kind) == kind
    assert arrow_type(typed_kind(kind)) == kind


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
    assert written_type(kind) == written


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], NULL),
        ([None, None], NULL),
        ([True, None], BOOLEAN),
        ([1, -(2**53), None], INTEGER),
        ([1, 2**53 + 1], LONG),
        ([-(2**63), 2**63 - 1], LONG),
        ([2**63], STRING),
        ([1, 1.5], DOUBLE),
        ([2**53 + 1, 1.5], STRING),
        ([True, 1], STRING),
        (["a", 1], STRING),
        ([{"a": 1}], STRING),
        ([[1], None], STRING),
    ],
)
def test_kinds_hold_their_values(values: list[object], kind: str) -> None:
    assert kind_of(values) == kind
    array = to_arrow(values, kind).to_pylist()
    assert array == ([as_text(value) for value in values] if kind == STRING else values)


def test_other_values_become_json_text() -> None:
    values = ["as is", 1, 1.5, True, {"a": [1, None]}, 10**30, None]
    texts = ["as is", "1", "1.5", "true", '{"a":[1,null]}', "1" + "0" * 30, None]
    assert [as_text(value) for value in values] == texts


def test_columns_keep_the_order_of_first_sight() -> None:
    united = unite_columns([{"b": INTEGER, "a": NULL}, {"c": STRING, "b": DOUBLE, "a": BOOLEAN}])
    assert list(united.items()) == [("b", DOUBLE), ("a", BOOLEAN), ("c", STRING)]
