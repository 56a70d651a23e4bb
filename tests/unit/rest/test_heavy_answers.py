"""Large answers are written beside the server's loop, and a cheap test tells whether an answer is
large."""

import json
import time

import pytest

from headgate.herder.calls import ErrorKind, Failure, Success
from headgate_rest.heavy_thread import LIGHT_BYTES, least_size

ROW = {"name": "orders", "status": {"state": "RUNNING", "tasks": [{"id": 0}, {"id": None}]}}
SHOWN = [
    Success(),
    Success(["a" * 1_000] * 10),
    Success({str(n): ROW for n in range(200)}),
    Failure(ErrorKind.CONFLICT, "no"),
    Success([[[1.5, True, None]], {"a": {"b": {}}}]),
]


@pytest.mark.parametrize("result", SHOWN, ids=lambda each: repr(each)[:20])
def test_it_is_about_the_length_of_the_json(result: Success | Failure) -> None:
    value = result.value if isinstance(result, Success) else None
    length = len(json.dumps(value, separators=(",", ":")))
    assert length / 3 <= least_size(result, 10**9) <= length * 2 + 20


def test_what_is_large_is_not_walked_through() -> None:
    large = [Success([ROW] * 1_000_000), Success({str(n): 1 for n in range(1_000_000)})]
    begun = time.perf_counter()
    assert all(least_size(each, LIGHT_BYTES) > LIGHT_BYTES for each in large)
    assert time.perf_counter() - begun < 0.5
