import itertools

import pytest

from headgate_spark.columns import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    LONG,
    NULL,
    STRING,
    as_text,
    kind_of,
    to_arrow,
    unite,
    unite_columns,
)

KINDS = (NULL, BOOLEAN, INTEGER, LONG, DOUBLE, STRING)


def test_uniting_is_commutative_associative_and_idempotent() -> None:
    for a, b, c in itertools.product(KINDS, repeat=3):
        assert unite(a, b) == unite(b, a)
        assert unite(a, unite(b, c)) == unite(unite(a, b), c)
        assert unite(a, a) == a


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
