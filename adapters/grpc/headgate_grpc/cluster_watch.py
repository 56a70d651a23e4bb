"""Watching the cluster: the workers as they are now, and each one that changes.

Level-triggered, as `headgate_grpc.watch` is: whoever is slow misses states in between, and costs
what it was told last. While somebody watches, the backend is asked every `LOOK_S`, once for all.
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
"""How often other workers are asked, where the backend has to ask them. They are as they were told
last meanwhile."""
ASKED_S: Final = 0.05
"""Time between two looks whether the others were asked for the first time."""
SILENCE_S: Final = 10.0
"""After so long without a change a response says that the watch lives."""
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
        """Members of the group, of which `Backend.cluster` may not tell; None: not asked yet."""
        self._others_unknown = ""
        """Why they could not be told the last time; they are as before meanwhile."""
        self._looks = 0
        """How often the cluster was looked at."""
        self._error = ""
        """Why the last look failed; empty: it did not."""
        self._watching = 0
        self._news = asyncio.Condition()
        self._follower: asyncio.Task[None] | None = None
        self._closed = False

    async def close(self) -> None:
        """Watches end with UNAVAILABLE."""
        self._closed = True
        if self._follower is not None:
            self._follower.cancel()
        async with self._news:
            self._news.notify_all()

    async def watch(self) -> AsyncIterator[pb.WatchClusterResponse]:
        """The responses of one stream.

        Raises:
            RefusedError: too many watches are open, the server ends, or the workers cannot be
                looked at.
        """
        if self._watching >= WATCHES_MAX:
            text = f"{WATCHES_MAX} watches of the cluster are open on this worker already"
            raise RefusedError(TOO_MANY, text)
        self._watching += 1
        try:
            if self._follower is None:
                self._follower = asyncio.create_task(self._follow())
            # The look that is under way may have begun before what the client has seen.
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
        """Until there is something else to tell, or it was silent for long."""
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
        """A worker that does not answer must not keep the looks at this one waiting."""
        while True:
            try:
                found = messages.cluster(await self._backend.group(ASK_MS))
                self._others_unknown, last = found.others_unknown, self._others or []
                members = [each for each in found.workers if each.member]
                self._others = last if found.others_unknown else _as_last(members, last)
            except Exception as error:  # the looks at this worker tell what is wrong
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
            except Exception as error:  # who watches waits for the next look
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
    """`workers`; one that does not answer has what it told before in the same generation."""
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
    """What is new since `told`, which becomes what is there; at least one response."""
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
