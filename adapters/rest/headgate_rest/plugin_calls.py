"""Calls of plugins with a time limit, since plugins are users' code, which may hang."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headgate_rest.side_requests import Plugins

T = TypeVar("T")


class LateError(Exception):
    """No answer came in time."""

    def __init__(self, begun: bool) -> None:
        super().__init__(begun)
        self.begun = begun
        """Whether the call has begun. False: no thread was free for it."""


class PluginCalls:
    """Calls of plugins, for the server's loop."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    async def run(self, plugin: str, call: Callable[[], T], timeout_ms: int) -> T:
        """Run `call`, which calls `plugin`, on a thread. Return or raise what it does.

        Raises:
            LateError: it did not end in time. If it has begun, its thread is left alone.
            PluginsHangError: as `Plugins.submit`.
        """
        outcome: Future[T] = Future()

        def work() -> None:
            if not outcome.set_running_or_notify_cancel():
                return  # it was late and its waiter has gone
            try:
                outcome.set_result(call())
            except Exception as error:
                outcome.set_exception(error)
            except BaseException as error:  # SystemExit would end the loop, and the server with it
                outcome.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

        self._plugins.submit(plugin, work)
        asked = asyncio.wrap_future(outcome)
        try:
            done, _ = await asyncio.wait({asked}, timeout=timeout_ms / 1000)
        finally:
            # Cancelled directly: `asked` would cancel it only in the loop's next turn, and a thread
            # may begin it before that.
            begun = not outcome.cancel()
            asked.cancel()
        if not done:
            raise LateError(begun)
        return asked.result()
