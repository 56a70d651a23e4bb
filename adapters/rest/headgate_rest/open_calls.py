"""Calls that came by HTTP and are not answered yet. The server's thread and the worker's share
them."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.herder.calls import Call, Result
from headgate.ports import IncomingCall

OPEN_MAX: Final = 1_000


class TooManyError(Exception):
    """`OPEN_MAX` calls are open."""


@dataclass(slots=True)
class _Open:
    call: Call
    hops: int
    deadline: float
    answered: Callable[[Result], None]
    origin: str
    taken: bool = False


class OpenCalls:
    """The open calls. `ask` is for the server's loop, and `take` and `answer` for any thread."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[str, _Open] = {}
        self._waiting: list[str] = []

    async def ask(
        self,
        call: Call,
        hops: int,
        timeout_ms: int,
        grace_ms: int,
        gone: asyncio.Future[None],
        origin: str = "",
    ) -> Result:
        """Wait for the worker's answer to `call` and return it.

        Args:
            timeout_ms: time until the call's deadline.
            grace_ms: how long after the deadline the answer may come.
            gone: is done when the client has gone.
            origin: as in `IncomingCall`.

        Raises:
            TimeoutError: no answer came in time. `args[0]` tells whether the worker took the call.
            ConnectionAbortedError: `gone` was done first.
            TooManyError: `OPEN_MAX` calls are open, and this one was not added.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def answered(result: Result) -> None:
            loop.call_soon_threadsafe(answer.set_result, result)

        deadline = time.monotonic() + timeout_ms / 1000
        call_id = self._add(_Open(call, hops, deadline, answered, origin))
        self._arrived()
        try:
            await asyncio.wait(
                (answer, gone),
                timeout=(timeout_ms + grace_ms) / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            left = self._remove(call_id)
        if answer.done():
            return answer.result()
        if gone.done():
            raise ConnectionAbortedError
        raise TimeoutError(left is None or left.taken)

    def _add(self, call: _Open) -> str:
        with self._lock:
            if len(self._calls) >= OPEN_MAX:
                raise TooManyError
            call_id = f"http-{next(self._numbers)}"
            self._calls[call_id] = call
            self._waiting.append(call_id)
        return call_id

    def _remove(self, call_id: str) -> _Open | None:
        with self._lock:
            return self._calls.pop(call_id, None)

    def take(self) -> Sequence[IncomingCall]:
        """Return the calls that were not taken yet and whose clients still wait, in order of
        arrival."""
        if not self._waiting:
            return ()
        now = time.monotonic()
        taken: list[IncomingCall] = []
        with self._lock:
            for call_id in self._waiting:
                found = self._calls.get(call_id)
                if found is None:
                    continue  # the client has given up
                left_ms = int((found.deadline - now) * 1000)
                if left_ms > 0:
                    found.taken = True
                    taken.append(
                        IncomingCall(call_id, found.call, found.hops, left_ms, found.origin)
                    )
            self._waiting.clear()
        return taken

    def answer(self, call_id: str, result: Result) -> None:
        found = self._remove(call_id)
        if found is not None:
            found.answered(result)

    def answer_all(self, result: Result) -> None:
        """Answer all open calls, at the end of the service."""
        with self._lock:
            left, self._calls = list(self._calls.values()), {}
        for call in left:
            call.answered(result)
