"""Large answers are written in pieces, and read the same."""

import json
import sys
import threading
import time
from typing import Any

import pytest

from headgate_rest.http import PIECE, json_bytes


@pytest.mark.parametrize("count", [0, 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 1])
def test_long_lists_are_written_as_short_ones(count: int) -> None:
    items: list[Any] = [{"a": "ö\ud800"}, [1, None], "x", 1.5, True] * count
    for value in (
        items,
        {"b": 1, "c": items, "d": {}, "é": items},
        {"a": {"b": items}},
        {1: items},
    ):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        assert json_bytes(value) == text.encode(errors="replace")


def test_other_threads_run_while_a_large_answer_is_written() -> None:
    value = {"configs": [{"definition": {str(n): "x" * 50 for n in range(20)}}] * 30_000}
    longest, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal longest
        while not over.is_set():
            begun = time.thread_time(), time.process_time()
            time.sleep(0.001)
            used = time.process_time() - begun[1] - (time.thread_time() - begun[0])
            longest = max(longest, used)

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_2)
    thread = threading.Thread(target=watch)
    thread.start()
    begun = time.process_time()
    text = json_bytes(value)
    took = time.process_time() - begun
    over.set()
    thread.join()
    sys.setswitchinterval(before)
    assert len(text) > 10_000_000
    assert longest < took / 2
