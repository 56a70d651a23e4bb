"""JSON of many values is read as other JSON is, but lets other threads run meanwhile."""

import json
import time

import pytest

from headgate_rest.http import Refusal, read_json
from headgate_rest.patient_json import MANY, has_many_values, load_patiently, values_in

GOOD = [
    '{"a": [1, 2.5, -3e5, null, true, {"x": "é€\\"\\\\"}], "b": "\\u00fc"}',
    '[[], {}, [[1]], ""]',
    " 17 ",
]
BAD = ["[1,]", '{"a":}', '{"a":1,}', "[1 2]", '{"a" 1}', '"\x01"', "[1]x", "{1: 2}", "[", ""]


@pytest.mark.parametrize("text", GOOD)
def test_it_reads_what_the_other_reads(text: str) -> None:
    assert load_patiently(text.encode()) == json.loads(text)


@pytest.mark.parametrize("text", BAD)
def test_it_refuses_what_the_other_refuses_with_its_words(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as other:
        json.loads(text)
    with pytest.raises(ValueError, match=r".") as patient:
        load_patiently(text.encode())
    assert str(patient.value) == str(other.value)


def test_only_texts_of_many_values_are_read_so() -> None:
    assert not has_many_values(b'{"a": "%s"}' % (b"x, " * MANY))
    assert has_many_values(b"[" + b"[]," * MANY + b"0]")


def test_values_are_counted_outside_of_texts() -> None:
    body = b'{"a": "1,2,[3]{\\",", "b": [1, 2], "c": {}}'
    assert values_in(body) == 6  # three brackets, three commas
    assert values_in(b"[" + b"0," * 9 + b"0]") == 10


@pytest.mark.parametrize("text", [b'"', b'\\"', b'\\\\"', b'"\\', b'","'])
def test_texts_without_an_end_are_looked_at_once(text: bytes) -> None:
    """A pattern that starts again at each quote would take hours."""
    begun = time.perf_counter()
    values_in(text * 300_000)
    values_in(b'"' + text * 300_000)
    assert time.perf_counter() - begun < 2


def test_nested_too_deeply_is_told() -> None:
    with pytest.raises(Refusal, match="too deeply nested"):
        read_json(b"[" * 2 * MANY, "a list")
