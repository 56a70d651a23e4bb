"""A thread for large JSON, which on the event loop would delay every other request."""

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
"""Least length of a number, string or object in JSON, with the separator after it."""
REST_FACTOR: Final = 3
SWITCH_S: Final = 0.000_2
"""How long a thread keeps the interpreter lock while others want it, instead of Python's 5 ms. The
loop releases the lock at each socket call, and would wait 5 ms after each. For a turn with a
hundred connections that is half a second."""


def take_short_turns() -> None:
    """Have all threads of the process release the interpreter lock after `SWITCH_S`, from now on.

    The old interval is never restored: Python rounds it down, so each time it would lose a
    microsecond.
    """
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)


def least_size(value: object, enough: int) -> int:
    """Return a lower estimate of the bytes of JSON for `value`, which is plain data or a result. It
    stops counting at `enough`, so it is cheap for any `value`."""
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
    """A thread that runs one piece of work at a time, and then rests `REST_FACTOR` times as long.

    Python's JSON lets no other threads run while it reads or writes one text. In the rests the loop
    handles what has accumulated. Once this is made, all threads of the process take short turns.
    Otherwise a few that compute, such as validations, would delay the loop for seconds.
    """

    def __init__(self) -> None:
        take_short_turns()
        self._executor = ThreadPoolExecutor(1, "rest-json")
        self._rest_until = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread. Return or raise what it does."""
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
