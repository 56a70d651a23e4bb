"""Members and a coordinator in virtual time, over a network that delays, loses and reorders
messages.

A worker here is a member machine, with a table of running and stopping work in place of a herder.
When a worker starts work, no other member of that generation may run it or be stopping it.

Workers may offer different protocols, so each round may use another one. In rounds of `default` no
member can report what it is still stopping, and in the first of them no member has stopped anything
before. Even there, two kinds of members must not run work that another starts. One is a member
whose last round was of `default` too, so that it stopped everything before joining. The other is a
member that already has the new round's assignment.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership import member_messages as mm
from headgate.membership.coordinator import Coordinator, GroupState
from headgate.membership.member import Member
from headgate.membership.member_messages import MemberState

GROUP = "g"
OURS = ("headgate",)
OFFERS = (
    ("headgate", "sessioned", "compatible", "default"),
    ("headgate", "sessioned", "compatible", "default"),
    ("sessioned", "compatible", "default"),
    ("compatible", "default"),
    ("default",),
)


class TwoOwnersError(AssertionError):
    """Two workers run the same work: the safety check failed."""


class StrangeWorkError(AssertionError):
    """A worker runs work that the leader of another cluster assigned from a config topic of its
    own."""


@dataclass
class Worker:
    name: str
    member: Member
    offset: int
    """Assignment offset to which the worker has read."""
    config_offset: int
    running: set[Work] = field(default_factory=set)
    stopping: set[Work] = field(default_factory=set)
    assigned: set[Work] = field(default_factory=set)
    may_start: bool = False
    awaits_release: bool = False
    frozen_until_ms: int = -1
    mailbox: list[mm.MemberInput] = field(default_factory=list)
    stopped_because: list[str] = field(default_factory=list)
    alive: bool = True
    leaving: bool = False
    topic: str = ""
    """The config topic that the worker reads, if there are several."""

    @property
    def left(self) -> bool:
        """Whether the worker has left the group and stopped all that it ran."""
        return self.member.state is MemberState.OUTSIDE and not self.stopping


class Cluster:
    def __init__(
        self,
        seed: int,
        workers: int = 3,
        offers: Sequence[tuple[str, ...]] = (OURS,),
        topics: Sequence[str] = ("",),
        **settings: Any,
    ) -> None:
        self.random = Random(seed)
        self.offers = offers
        self.topics = topics
        """Config topics that workers read: all alike, in length and in what they say."""
        self.settings: dict[str, Any] = {
            "session_timeout_ms": 1_000,
            "heartbeat_interval_ms": 300,
            "rebalance_timeout_ms": 3_000,
            "delay_ms_max": 2_000,
            "error_pause_ms": 100,
            "other_topic_pause_ms": 1_000,
            **settings,
        }
        self.now_ms = 0
        self.faulty = True
        self.coordinator = Coordinator(next_leader=self.random.choice)
        self.members_of: dict[int, tuple[str, ...]] = {}
        """Of each generation as it was completed."""
        self.connectors = {"a": 3, "b": 2}
        self.offset = 10
        self.config_offset = 15
        self.workers: list[Worker] = []
        self.topic_of: dict[str, str] = {}
        """Of all workers that ever were."""
        self._events: list[tuple[int, int, str, Any]] = []
        self._count = count()
        self._names = count()
        for _ in range(workers):
            self.start_worker()
        self._at(0, "coordinator", None)

    # -- what may be done to it --

    def start_worker(self, topic: str | None = None) -> Worker:
        name = f"w{next(self._names)}"
        offer = self.offers[0] if len(self.offers) == 1 else self.random.choice(self.offers)
        if topic is None:
            topic = self.topics[0] if len(self.topics) == 1 else self.random.choice(self.topics)
        settings = mm.MemberSettings(
            GROUP, name, f"url-{name}", protocols=offer, config_topic=topic, **self.settings
        )
        worker = Worker(name, Member(settings), self.offset, self.config_offset, topic=topic)
        self.workers.append(worker)
        self.topic_of[name] = topic
        self._at(self.now_ms, "input", (worker, mm.Start()))
        self._at(self.now_ms, "tick", worker)
        return worker

    def crash(self, worker: Worker) -> None:
        worker.alive = False
        self.workers.remove(worker)

    def freeze(self, worker: Worker, ms: int) -> None:
        worker.frozen_until_ms = self.now_ms + ms

    def change_config(self) -> None:
        """Write a record that changes what is to be assigned. Each worker reads it after a delay of
        its own."""
        name = self.random.choice("abc")
        self.connectors = {**self.connectors, name: self.random.randrange(4)}
        self.config_offset += 1
        self.offset = self.config_offset
        self._written()

    def write_record(self) -> None:
        """Write a record that does not change what is to be assigned."""
        self.config_offset += 1
        self._written()

    def leave(self, worker: Worker) -> None:
        worker.leaving = True
        self._at(self.now_ms, "input", (worker, mm.Leave()))

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            at_ms, _, kind, what = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            getattr(self, f"_on_{kind}")(what)
        self.now_ms = until_ms

    # -- what happens --

    def _on_input(self, what: tuple[Worker, mm.MemberInput]) -> None:
        worker, given = what
        if not worker.alive:
            return
        if self.now_ms < worker.frozen_until_ms:
            worker.mailbox.append(given)
            return
        items = (*worker.mailbox, given)
        worker.mailbox = []
        for item in items:
            if worker.alive:
                self._give(worker, item)

    def _on_tick(self, worker: Worker) -> None:
        if not worker.alive:
            return
        deadline_ms = worker.member.next_deadline_ms
        if self.now_ms >= worker.frozen_until_ms:
            items, worker.mailbox = worker.mailbox, []
            for item in items:
                if worker.alive:
                    self._give(worker, item)
            if worker.alive and deadline_ms is not None and deadline_ms <= self.now_ms:
                self._give(worker, mm.Tick())
        self._at(self.now_ms + 20, "tick", worker)

    def _on_read(self, worker: Worker) -> None:
        worker.config_offset = self.config_offset
        if worker.offset < self.offset:
            worker.offset = self.offset
            self._on_input((worker, mm.RejoinRequested("the config topic changed")))

    def _on_caught_up(self, worker: Worker) -> None:
        worker.offset = self.offset
        worker.config_offset = self.config_offset
        self._on_input((worker, mm.CaughtUp()))

    def _on_request(self, what: tuple[Worker, Any]) -> None:
        worker, request = what
        new_id = str(next(self._count))
        for response in self.coordinator.handle(self.now_ms, request, new_id):
            direct = response.member_id in (request.member_id, f"{worker.name}-{new_id}")
            self._respond(response, worker if direct else None)
        self._note_members()

    def _on_coordinator(self, _: None) -> None:
        for response in self.coordinator.tick(self.now_ms):
            self._respond(response, None)
        self._note_members()
        self._at(self.now_ms + 20, "coordinator", None)

    def _note_members(self) -> None:
        if self.coordinator.state(GROUP) is GroupState.COMPLETING:
            generation = self.coordinator.generation(GROUP)
            self.members_of.setdefault(generation, self.coordinator.members(GROUP))

    def _respond(self, response: Any, worker: Worker | None) -> None:
        if worker is None:
            name = response.member_id.split("-")[0]
            worker = next((other for other in self.workers if other.name == name), None)
        if worker is not None and not self._lost():
            self._at(self.now_ms + self._latency(), "input", (worker, response))

    def _on_stopped(self, what: tuple[Worker, frozenset[Work]]) -> None:
        worker, works = what
        worker.stopping -= works
        if worker.alive and worker.awaits_release and not worker.stopping:
            worker.awaits_release = False
            self._on_input((worker, mm.WorkReleased()))
        if worker.alive and self.now_ms >= worker.frozen_until_ms:
            self._start_assigned(worker)

    def _give(self, worker: Worker, given: mm.MemberInput) -> None:
        held = sorted(worker.running | worker.stopping, key=str)
        view = mm.WorkView(
            worker.offset,
            worker.config_offset,
            self.connectors if worker.offset == self.offset else {},
            tuple(work for work in held if isinstance(work, str)),
            tuple(work for work in held if isinstance(work, TaskId)),
        )
        for output in worker.member.handle(self.now_ms, given, view):
            self._perform(worker, output)
        if worker.left:
            self.crash(worker)

    def _perform(self, worker: Worker, output: mm.MemberOutput) -> None:
        match output:
            case mm.Assigned():
                worker.assigned = {*output.connectors, *output.tasks}
                worker.may_start = False
            case mm.Revoked():
                worker.assigned -= {*output.connectors, *output.tasks}
                self._stop(worker, {*output.connectors, *output.tasks} & worker.running)
            case mm.StopEverything():
                worker.stopped_because.append(output.reason)
                worker.assigned = set()
                worker.may_start = False
                self._stop(worker, set(worker.running))
            case mm.CatchUp():
                self._at(self.now_ms + self._latency(), "caught_up", worker)
            case mm.StartAllowed():
                worker.may_start = True
                self._start_assigned(worker)
            case _:
                if not self._lost():
                    self._at(self.now_ms + self._latency(), "request", (worker, output))

    def _stop(self, worker: Worker, works: set[Work]) -> None:
        worker.running -= works
        worker.stopping |= works
        worker.awaits_release = True
        takes_ms = self.random.choice([0, 10, 200, 4_000 if self.faulty else 10])
        self._at(self.now_ms + takes_ms, "stopped", (worker, frozenset(works)))

    def _start_assigned(self, worker: Worker) -> None:
        if not worker.may_start:
            return
        for work in sorted(worker.assigned - worker.running - worker.stopping, key=str):
            self._check_start(worker, work)
            worker.running.add(work)

    # -- what must hold --

    def _check_start(self, worker: Worker, work: Work) -> None:
        # A member that came after the round was computed is no part of it. Had it been in the round
        # and reported the work, the work would not have been given away.
        generation = worker.member.generation
        members = self.members_of[generation]
        eager = worker.member.protocol == "default"
        leader = worker.member.leader_url.removeprefix("url-")
        if self.topic_of[leader] != worker.topic:
            raise StrangeWorkError(f"{worker.name} starts {work} for {leader}, of another cluster")
        for other in self.workers:
            if (
                other is worker
                or other.topic != worker.topic
                or other.member.member_id not in members
            ):
                continue
            holds = work in other.running or (work in other.stopping and not eager)
            told = other.member.generation == generation or other.member.protocol == "default"
            if holds and (told or not eager):
                raise TwoOwnersError(
                    f"{self.now_ms} ms: {worker.name} starts {work}, which {other.name} holds, "
                    f"in generation {generation} of {worker.member.protocol}"
                )

    def settled(self) -> bool:
        """Return whether everything configured runs exactly once and nothing is under way.

        Of two clusters that share a group by mistake, one must run everything and the other
        nothing.
        """
        tasks = [TaskId(name, n) for name, many in self.connectors.items() for n in range(many)]
        running = sorted(str(w) for worker in self.workers for w in worker.running)
        if running != sorted(map(str, [*self.connectors, *tasks])):
            return False
        if len(self.topics) > 1:
            return len({worker.topic for worker in self.workers if worker.running}) == 1
        return all(
            worker.member.state is MemberState.STEADY and not worker.member.pending
            for worker in self.workers
        )

    # -- helpers --

    def _written(self) -> None:
        for worker in self.workers:
            self._at(self.now_ms + self._latency(), "read", worker)

    def _at(self, at_ms: int, kind: str, what: Any) -> None:
        heapq.heappush(self._events, (at_ms, next(self._count), kind, what))

    def _latency(self) -> int:
        if not self.faulty:
            return 1
        return self.random.choice([1, 1, 5, 30, 250, 700])

    def _lost(self) -> bool:
        return self.faulty and self.random.random() < 0.05
