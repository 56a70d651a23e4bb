"""One thread for JSON that is large: on the loop it would keep every other request waiting."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar, cast

from headgate.herder.calls import Success

T = TypeVar("T")

LIGHT_BYTES: Final = 65_536
"""JSON up to this length is read and written on the loop, in a few milliseconds."""
ITEM_BYTES: Final = 4
"""Least length of a number, a text or a table in JSON, with what separates it from the next."""
REST_FACTOR: Final = 3
SWITCH_S: Final = 0.000_2
"""How long a thread keeps the interpreter while others want it, instead of Python's 5 ms. The loop
gives it up at each call of a socket, and would wait 5 ms after each: half a second for a turn with
a hundred connections."""


def take_short_turns() -> None:
    """Have all threads of the process give the interpreter up after `SWITCH_S`, from now on.

    Not for a time: Python rounds the interval down, so putting it back takes a microsecond off.
    """
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)


def least_size(value: object, enough: int) -> int:
    """About how many bytes of JSON `value`, plain data or a result, will be, at least. It counts no
    further than to `enough`, so that it costs little whatever `value` is."""
    size, left = 0, [value]
    while left and size <= enough:
        item = left.pop()
        size += ITEM_BYTES
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Success):
            left.append(item.value)
        elif isinstance(item, Mapping):
            table = cast(Mapping[str, object], item)
            left.extend(islice(chain.from_iterable(table.items()), enough))
        elif isinstance(item, list):
            left.extend(islice(cast(list[object], item), enough))
    return size


class HeavyThread:
    """Does one work at a time, and rests after each `REST_FACTOR` times as long as that took.

    Python's JSON does not let other threads run while it reads or writes one text. In the rests
    the loop does what has gathered. From the thread's making all threads of the process take short
    turns: a few that compute, such as validations, would keep the loop waiting for seconds.
    """

    def __init__(self) -> None:
        take_short_turns()
        self._executor = ThreadPoolExecutor(1, "rest-json")
        self._rest_until = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._do, work)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _do(self, work: Callable[[], T]) -> T:
        begun = time.monotonic()
        if begun < self._rest_until:
            time.sleep(self._rest_until - begun)
            begun = time.monotonic()
        try:
            return work()
        finally:
            ended = time.monotonic()
            self._rest_until = ended + REST_FACTOR * (ended - begun)
