"""Work that may hang, with waiting for it on an event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headgate_runtime.worker.daemon_threads import DaemonThreads

T = TypeVar("T")


async def on_thread(threads: DaemonThreads, work: Callable[[], T], timeout_ms: int) -> T:
    """Return or raise what `work` returns or raises.

    Raises:
        TimeoutError: it has not ended in time. It is left alone.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from now on a caller that leaves does not end it

    def worked() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)
        except BaseException as error:  # a plugin's SystemExit would end the server's loop
            outcome.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    threads.submit(worked)
    waiting = asyncio.wrap_future(outcome)
    done, _ = await asyncio.wait({waiting}, timeout=timeout_ms / 1000)
    if not done:
        waiting.cancel()
        raise TimeoutError
    return waiting.result()
