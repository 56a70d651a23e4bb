"""Questions to the other workers of a group, asked when somebody wants to know."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

from headgate import wire
from headgate.herder.messages import (
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
    Success,
    ViewOfWorker,
    WorkerView,
)
from headgate.ports import TransportError
from headgate_runtime.worker.daemon_threads import DaemonThreads

Ask: TypeAlias = Callable[[str, DescribeWorker, int, int], Result]
"""Type of `Peers.call`."""

AT_ONCE: Final = 16
"""Workers that are asked at once: so many that answered the last time, and so many others."""
BEGIN_MS: Final = 1_000
"""How long a question may wait for its turn before it is dropped."""
OTHERS_MS: Final = 2_000
"""How long a worker may take to answer. The caller that asks for the group waits for it."""
TELLS_NOTHING: Final = "it is a Java worker or an older Headgate, which does not tell"
LATE: Final = f"it did not answer within {OTHERS_MS // 1000} s"
NOT_ASKED: Final = (
    f"it was not asked: {AT_ONCE} other workers that do not answer were asked before it"
)


class _Question:
    """One call to one worker, made on a thread."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self.begun: Future[None] = Future()
        self.result: Future[Result] = Future()
        for each in (self.begun, self.result):
            each.set_running_or_notify_cancel()  # from now on a caller that leaves does not end it

    def __call__(self) -> None:
        self.begun.set_result(None)
        try:
            self.result.set_result(self._call())
        except Exception as error:
            self.result.set_exception(error)


class Others:
    """Asks other workers over gRPC or HTTP, as calls between workers go. Belongs to one event loop.

    Over gRPC each worker answers with what has changed since the last question. Callers that ask
    while a worker is being asked get the same answer.

    Workers that do not answer hold up each other, but none that answered the last time: those have
    threads of their own. A worker whose last call hangs is not called again before that call ends.
    """

    def __init__(self) -> None:
        hangs_s = OTHERS_MS / 1000 + 1
        self._sure = DaemonThreads(AT_ONCE, "others", hangs_s)
        self._unsure = DaemonThreads(AT_ONCE, "silent-others", hangs_s)
        self._known: dict[str, ViewOfWorker] = {}
        """What is known of each worker, by URL."""
        self._asked: dict[str, asyncio.Task[WorkerView | str]] = {}
        """Workers that are being asked, by URL."""
        self._open: dict[str, _Question] = {}
        """Questions that have begun and not ended, including those for which nobody waits any
        more."""
        self._answered: set[str] = set()
        """Workers that answered in time when they were last asked."""
        self._turns: dict[str, int] = {}
        """When each worker was last asked: the larger the later."""
        self._turn = 0

    async def views(self, ask: Ask, urls: Iterable[str]) -> Mapping[str, WorkerView | str]:
        """Return the view of each worker, or a text that says why there is none."""
        wanted = tuple(urls)
        self._known = {url: known for url, known in self._known.items() if url in wanted}
        self._turns = {url: turn for url, turn in self._turns.items() if url in wanted}
        self._answered.intersection_update(wanted)
        self._open = {url: asked for url, asked in self._open.items() if not asked.result.done()}
        # The worker that has waited longest comes first, so that all have their turn.
        for url in sorted(wanted, key=lambda url: self._turns.get(url, 0)):
            if url not in self._asked:
                asked = self._asked[url] = asyncio.create_task(self._view(ask, url))
                asked.add_done_callback(lambda _, url=url: self._asked.pop(url))  # type: ignore[misc]
        tasks = {url: self._asked[url] for url in wanted}
        # Shielded: a caller that gives up must not end the question for others who wait for it.
        found = await asyncio.gather(*map(asyncio.shield, tasks.values()))
        return dict(zip(tasks, found, strict=True))

    async def _view(self, ask: Ask, url: str) -> WorkerView | str:
        if url in self._open:
            return LATE
        known = self._known.setdefault(url, ViewOfWorker())
        call = DescribeWorker(known.mark)
        question = _Question(lambda: ask(url, call, 1, OTHERS_MS))
        if not await self._begun(question, url):
            return NOT_ASKED
        self._turn += 1
        self._turns[url], self._open[url] = self._turn, question
        self._answered.discard(url)
        result = asyncio.wrap_future(question.result)
        done, _ = await asyncio.wait({result}, timeout=OTHERS_MS / 1000)
        if not done:
            result.cancel()
            return LATE
        self._open.pop(url, None)
        try:
            return self._told(url, known, result.result())
        except wire.WireError:
            return TELLS_NOTHING
        except TransportError as error:
            return str(error)

    async def _begun(self, question: _Question, url: str) -> bool:
        """Wait until the question begins. Return False if it never will."""
        threads = self._sure if url in self._answered else self._unsure
        threads.submit(question)
        begun = asyncio.wrap_future(question.begun)
        done, _ = await asyncio.wait({begun}, timeout=BEGIN_MS / 1000)
        if done:
            return True
        begun.cancel()
        return not threads.withdraw(question)

    def _told(self, url: str, known: ViewOfWorker, result: Result) -> WorkerView | str:
        if isinstance(result, Success) or result.kind is ErrorKind.NOT_FOUND:
            self._answered.add(url)
        if isinstance(result, Failure):
            return TELLS_NOTHING if result.kind is ErrorKind.NOT_FOUND else result.message
        told: Any = result.value
        return known.take(wire.from_plain(WorkerView, told))
