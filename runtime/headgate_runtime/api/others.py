"""The other workers of a group, asked what they are at when somebody wants to know."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from headgate import wire
from headgate.herder.messages import (
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
    ViewOfWorker,
    WorkerView,
)
from headgate.ports import TransportError
from headgate_runtime.api.threads import on_thread
from headgate_runtime.worker.daemon_threads import DaemonThreads

Ask: TypeAlias = Callable[[str, DescribeWorker, int, int], Result]
"""`Peers.call`."""

AT_ONCE: Final = 16
OTHERS_MS: Final = 2_000
"""How long a worker may take to answer. Who asks for the group waits for it."""
TELLS_NOTHING: Final = "it is a Java worker or an older Headgate, which does not tell"
LATE: Final = f"it did not answer within {OTHERS_MS // 1000} s"


class Others:
    """Asks by the way that calls between workers take, gRPC or HTTP. Belongs to one loop.

    Each worker tells what has changed since it was asked before, where it is called by gRPC. Who
    asks while it is being asked gets the same answer.
    """

    def __init__(self) -> None:
        self._threads = DaemonThreads(AT_ONCE, "others")
        self._known: dict[str, ViewOfWorker] = {}
        """What is known of each worker, by url."""
        self._asked: dict[str, asyncio.Task[WorkerView | str]] = {}
        """Workers that are being asked."""

    async def views(self, ask: Ask, urls: Iterable[str]) -> Mapping[str, WorkerView | str]:
        """What each says of itself; a text says why it does not."""
        wanted = tuple(urls)
        self._known = {url: known for url, known in self._known.items() if url in wanted}
        for url in wanted:
            if url not in self._asked:
                asked = self._asked[url] = asyncio.create_task(self._view(ask, url))
                asked.add_done_callback(lambda _, url=url: self._asked.pop(url))  # type: ignore[misc]
        tasks = {url: self._asked[url] for url in wanted}
        # Shielded: whoever gives up must not end it for those who ask for the same.
        found = await asyncio.gather(*map(asyncio.shield, tasks.values()))
        return dict(zip(tasks, found, strict=True))

    async def _view(self, ask: Ask, url: str) -> WorkerView | str:
        known = self._known.setdefault(url, ViewOfWorker())
        call = DescribeWorker(known.mark)
        try:
            result = await on_thread(self._threads, lambda: ask(url, call, 1, OTHERS_MS), OTHERS_MS)
            if isinstance(result, Failure):
                unknown = result.kind is ErrorKind.NOT_FOUND
                return TELLS_NOTHING if unknown else result.message
            told: Any = result.value
            return known.take(wire.from_plain(WorkerView, told))
        except TimeoutError:
            return LATE
        except wire.WireError:
            return TELLS_NOTHING
        except TransportError as error:
            return str(error)
