"""Threads for what plugins are asked: it is users' code, which may hang."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class LateError(Exception):
    """No answer came in time."""

    def __init__(self, begun: bool) -> None:
        super().__init__(begun)
        self.begun = begun
        """Else no thread was free for it."""


class PluginThreads:
    """Belongs to the server's loop.

    Not an executor: the loop and the interpreter wait at their ends for the threads of those, so
    that one call that hangs would keep a worker from ending.
    """

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def run(self, call: Callable[[], T], timeout_ms: int) -> T:
        """What `call` returns or raises.

        Raises:
            LateError: a call that has begun is left to itself; its thread is free when it ends.
        """
        begun = False

        async def on_thread() -> T:
            nonlocal begun
            await self._free.acquire()
            begun = True
            return await asyncio.wrap_future(self._start(call))

        asked = asyncio.ensure_future(on_thread())
        try:
            done, _ = await asyncio.wait({asked}, timeout=timeout_ms / 1000)
        finally:
            asked.cancel()
        if not done:
            raise LateError(begun)
        return asked.result()

    def _start(self, call: Callable[[], T]) -> "Future[T]":
        loop = asyncio.get_running_loop()
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # from now on nobody's leaving ends it

        def work() -> None:
            try:
                outcome.set_result(call())
            except Exception as error:
                outcome.set_exception(error)
            except BaseException as error:  # SystemExit would end the loop, and the server with it
                outcome.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(self._free.release)

        try:
            threading.Thread(target=work, name="plugins", daemon=True).start()
        except RuntimeError:  # no thread is to be had
            self._free.release()
            raise
        return outcome
