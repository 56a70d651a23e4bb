"""Watches of the cluster: the workers as they are now, then each one that changes.

Watches are level-triggered, as in `headgate_grpc.watch`. A slow client misses states in between,
and costs only the memory of the last state it was sent. While there are watches, the backend is
asked every `LOOK_S`, once for all of them.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from headgate.herder.messages import ErrorKind
from headgate_grpc import messages
from headgate_grpc.backend import Backend, TooManyError
from headgate_grpc.errors import MEANINGS, TOO_MANY, RefusedError
from headgate_grpc.v1 import cluster_service_pb2 as pb

log = logging.getLogger(__name__)

WATCHES_MAX: Final = 1_000
LOOK_S: Final = 0.5
OTHERS_S: Final = 5.0
"""Pause between requests to the other workers, if the backend has to ask them. In between, their
last answers are shown."""
ASKED_S: Final = 0.05
"""Pause between two checks whether the other workers were asked for the first time."""
SILENCE_S: Final = 10.0
"""Time without a change after which a response is sent, to show that the watch is alive."""
FIRST_S: Final = 15.0
"""How long a watch waits for its first look."""
RESPONSE_MAX: Final = 64 * 1024
ASK_MS: Final = 10_000
UNSEEN: Final = "The workers could not be looked at within {:g} s{}. Ask again"
ENDS: Final = "The worker is shutting down; watch another one"


class ClusterHub:
    """All cluster watches of one server. Belongs to the server's loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._now = pb.Cluster()
        self._others: list[pb.Worker] | None = None
        """Members of the group, which `Backend.cluster` may not have. None: not asked yet."""
        self._others_unknown = ""
        """Why the last request for them failed. Then they are shown as before."""
        self._looks = 0
        """Number of successful requests for this worker's own view."""
        self._error = ""
        """Why the last such request failed. Empty: it did not fail."""
        self._watching = 0
        self._news = asyncio.Condition()
        self._follower: asyncio.Task[None] | None = None
        self._closed = False

    async def close(self) -> None:
        """End all watches with UNAVAILABLE."""
        self._closed = True
        if self._follower is not None:
            self._follower.cancel()
        async with self._news:
            self._news.notify_all()

    async def watch(self) -> AsyncIterator[pb.WatchClusterResponse]:
        """Yield the responses of one stream.

        Raises:
            RefusedError: too many watches are open, the server is shutting down, or the backend has
                not shown the workers within `FIRST_S`.
        """
        if self._watching >= WATCHES_MAX:
            text = f"{WATCHES_MAX} watches of the cluster are open on this worker already"
            raise RefusedError(TOO_MANY, text)
        self._watching += 1
        try:
            if self._follower is None:
                self._follower = asyncio.create_task(self._follow())
            # The look under way may have begun before a change that the client already knows of.
            await self._look_after(self._looks + 2)
            told: dict[str, pb.Worker] = {}
            first = True
            while True:
                for response in _responses(self._now, told, first=first):
                    yield response
                first = False
                await self._change_from(told)
        finally:
            self._watching -= 1
            if not self._watching and self._follower is not None:
                self._follower.cancel()
                self._follower, self._others = None, None

    async def _look_after(self, looks: int) -> None:
        try:
            async with asyncio.timeout(FIRST_S), self._news:
                await self._news.wait_for(lambda: self._closed or self._looks >= looks)
        except TimeoutError:
            why = f": {self._error}" if self._error else ""
            text = UNSEEN.format(FIRST_S, why)
            raise RefusedError(MEANINGS[ErrorKind.NOT_READY], text) from None
        self._check_open()

    async def _change_from(self, told: dict[str, pb.Worker]) -> None:
        """Wait until the workers differ from `told`, but not longer than `SILENCE_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S), self._news:
                await self._news.wait_for(lambda: self._closed or _workers(self._now) != told)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise RefusedError(MEANINGS[ErrorKind.NOT_READY], ENDS)

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._follow_others())
            both.create_task(self._follow_own())

    async def _follow_others(self) -> None:
        """Ask for the other workers now and then. It is a task of its own, so that a worker that
        does not answer does not delay the looks at this one."""
        while True:
            try:
                found = messages.cluster(await self._backend.group(ASK_MS))
                self._others_unknown, last = found.others_unknown, self._others or []
                members = [each for each in found.workers if each.member]
                self._others = last if found.others_unknown else _as_last(members, last)
            except Exception as error:  # a lasting fault is reported by `_follow_own`
                log.debug("the other workers of the watched cluster: %s", error)
                self._others = self._others or []
            await asyncio.sleep(OTHERS_S)

    async def _follow_own(self) -> None:
        while True:
            if self._others is None:
                await asyncio.sleep(ASKED_S)
                continue
            try:
                found = messages.cluster(await self._backend.cluster(ASK_MS))
                found.others_unknown = self._others_unknown
                own = {each.worker_id for each in found.workers}
                members = {each.worker_id for each in self._others}
                for each in found.workers:
                    each.member = each.worker_id in members
                others = [each for each in self._others if each.worker_id not in own]
                found.workers.extend(others)
            except Exception as error:  # watches wait for the next look
                again, self._error = self._error, str(error) or type(error).__name__
                quiet = isinstance(error, TooManyError) or self._error == again
                log.log(
                    logging.DEBUG if quiet else logging.ERROR,
                    "the watched cluster: %s: %s",
                    type(error).__name__,
                    error,
                )
                await asyncio.sleep(LOOK_S)
                continue
            async with self._news:
                self._now = found
                self._looks += 1
                self._error = ""
                self._news.notify_all()
            await asyncio.sleep(LOOK_S)


def _as_last(workers: list[pb.Worker], before: list[pb.Worker]) -> list[pb.Worker]:
    """Return `workers`. One that does not answer is shown as in `before`, if it was in the same
    generation."""
    last = {each.worker_id: each for each in before}
    return [_with_last(each, last.get(each.worker_id)) for each in workers]


def _with_last(now: pb.Worker, last: pb.Worker | None) -> pb.Worker:
    if now.answers or last is None or last.generation != now.generation:
        return now
    kept = pb.Worker()
    kept.CopyFrom(last)
    for field in ("answers", "settled", "pending", "long_calls"):
        kept.ClearField(field)
    kept.unknown, kept.leader = now.unknown, now.leader
    return kept


def _workers(cluster: pb.Cluster) -> dict[str, pb.Worker]:
    return {each.worker_id: each for each in cluster.workers}


def _responses(
    cluster: pb.Cluster, told: dict[str, pb.Worker], *, first: bool
) -> list[pb.WatchClusterResponse]:
    """Return responses, at least one, with the differences between `told` and the current workers.
    Update `told`."""
    now = _workers(cluster)
    responses = [pb.WatchClusterResponse(reset=first)]
    if first:
        head = responses[0].cluster
        head.CopyFrom(cluster)
        del head.workers[:]
    size = 0
    for worker_id, worker in now.items():
        if told.get(worker_id) == worker:
            continue
        size += worker.ByteSize()
        if size > RESPONSE_MAX and responses[-1].workers:
            responses.append(pb.WatchClusterResponse())
            size = worker.ByteSize()
        responses[-1].workers.append(worker)
    responses[-1].removed_worker_ids.extend(sorted(told.keys() - now.keys()))
    responses[-1].synced = first
    told.clear()
    told.update(now)
    return responses
