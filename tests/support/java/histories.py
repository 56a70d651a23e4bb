"""Random histories of a group, led by Apache's assignors and by ours, and compared after every
round.

What is compared is the assignments that a leader makes of the members' metadata, byte by byte, and
what it remembers.

A history has one seed. Workers join, leave, and bounce under a new id. Connectors appear, change,
are deleted or lack task configs. Syncs fail for all or some, revoked work goes on running, and two
workers report the same work. The leader changes, an earlier leader leads again, and a leader is
behind a member.
"""

import itertools
import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from support.java.assignors import JavaAssignors

from headgate.assignment import connect
from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Assignment, Metadata
from headgate.membership.leading import Leader, lead
from headgate.membership.member_messages import WorkView
from headgate.membership.messages import GroupMember, JoinedGroup

DELAYS_MS_MAX = (0, 1, 8_000, 123_456, 300_000)
NAMES = (
    *("orders", "a", "b", "Aa", "BB", "c-1", "c-10", "c-2", "x-", "-", "\u00e9t\u00e9", "\uffee"),
    *("\U0001f400", "\U0001f400\U0001f401", "\ue000", "q.r", "CON", "z" * 40),
)
"""Names of connectors. Some sort differently by UTF-16 and by code point, some share a hash
code."""
CLIENTS = ("connect-10.0.0.7:8083-", "w", "", "\U0001f400-", "\uffee")
COLLIDING_IDS = ("AaAa", "BBBB", "AaBB", "BBAa")
CROWD = tuple("".join(blocks) for blocks in itertools.product(("Aa", "BB"), repeat=5))
"""Names with one hash code, more than fit in a bucket of a hash table as a list."""
URL = "http://10.0.0.7:8083/"


@dataclass
class Worker:
    """One worker process and the work that it holds."""

    last: Assignment | None = None
    held: list[Work] = field(default_factory=list)
    completed: int = -1
    """Generation of the worker's last successful sync."""
    memory: object | None = None
    offset: int = 0

    def metadata(self) -> Metadata:
        return Metadata(
            url=URL,
            config_offset=self.offset,
            connectors=tuple(work for work in self.held if isinstance(work, str)),
            tasks=tuple(work for work in self.held if isinstance(work, TaskId)),
            last=self.last,
        )


def metadata_in_its_order(worker: Worker) -> bytes:
    """Return metadata of version 1 whose writer is not Java: one entry for each piece of work, in
    the order in which it is held."""
    works = [
        (work, connect.CONNECTOR) if isinstance(work, str) else (work.connector, work.task)
        for work in worker.held
    ]
    current = struct.pack(">hhhhqi", 1, 0, 0, 0, 0, len(works))
    for name, number in works:
        data = name.encode()
        current += struct.pack(f">h{len(data)}sii", len(data), data, 1, number)
    url = URL.encode()
    head = struct.pack(f">hh{len(url)}sq", 1, len(url), url, worker.offset)
    return head + struct.pack(">i", len(current)) + current


class History:
    def __init__(self, java: JavaAssignors, seed: int, rounds: int) -> None:
        self.java = java
        self.chance = random.Random(seed)
        self.rounds = rounds
        self.protocol = self.chance.choice(["sessioned", "compatible"])
        self.delay_ms_max = self.chance.choice(DELAYS_MS_MAX)
        self.mixed = self.chance.random() < 0.2
        """The members are not Java's: what they hold they report in any order."""
        self.size = self.chance.choice([3, 3, 5, 5, 8, 8, 15, 40, 200])
        """About how many workers."""
        self.crowded = self.chance.random() < 0.2
        """Most names and ids are of `CROWD`."""
        self.now_ms = self.chance.choice([1, 1_000, 1_700_000_000_000])
        self.generation = self.chance.choice([0, 5])
        self.offset = 0
        self.connectors: dict[str, int] = {}
        self.inconsistent: set[str] = set()
        self.workers: dict[str, Worker] = {}
        self.leader = ""
        self.behind = False
        """The leader's snapshot is older than what a member has read."""
        self.told: list[str] = []
        """What happened, for whoever reads a failure."""

    def run(self) -> int:
        """Run the history, and return the number of rounds. Raises AssertionError where ours and
        Java's differ."""
        for _ in range(self.chance.randint(1, self.size)):
            self.join()
        for _ in range(self.chance.randint(0, max(3, self.size // 2))):
            self.configure()
        self.leader = self.chance.choice(list(self.workers))
        for number in range(self.rounds):
            for _ in range(self.chance.choice([0, 1, 1, 1, 2, 3])):
                self.happen()
            self.round()
            if number % 5 == 0:
                self.eager_round()
        return self.rounds

    # -- what happens between rounds --

    def happen(self) -> None:
        chance = self.chance
        what = chance.choice(
            [self.join, self.leave, self.leave, self.bounce, self.configure, self.configure]
            + [self.pass_time] * 4
            + [self.lead, self.report_twice, self.give_up, self.hold_on, self.shuffle]
        )
        self.told.append(what.__name__)
        what()

    def join(self) -> None:
        for _ in range(1 if self.size < 100 else self.chance.randint(1, 20)):
            member_id = self.chance.choice(CLIENTS) + f"{self.chance.getrandbits(64):x}"
            if self.chance.random() < 0.1:
                member_id = self.chance.choice(COLLIDING_IDS)
            if self.crowded and self.chance.random() < 0.8:
                member_id = self.chance.choice(CROWD)
            if len(self.workers) < self.size and member_id not in self.workers:
                self.workers[member_id] = Worker(offset=self.offset)
                self.java.ask("leader", leader=member_id, delay_ms_max=self.delay_ms_max)

    def leave(self) -> None:
        if len(self.workers) < 2:
            return
        member_id = self.chance.choice(list(self.workers))
        del self.workers[member_id]
        if member_id == self.leader:
            self.leader = self.chance.choice(list(self.workers))

    def bounce(self) -> None:
        self.leave()
        self.join()

    def configure(self) -> None:
        chance = self.chance
        self.offset += 1
        if self.connectors and chance.random() < 0.3:
            name = chance.choice(list(self.connectors))
            del self.connectors[name]
        else:
            name = chance.choice(CROWD if self.crowded and chance.random() < 0.7 else NAMES)
            if self.size > 8:
                name += str(chance.randrange(self.size))
            self.connectors[name] = chance.choice([0, 1, 2, 3, 5, 5 * self.size // 2])
        if chance.random() < 0.15:
            self.inconsistent ^= {name}

    def pass_time(self) -> None:
        planned_ms = self.now_ms
        memory = self.workers[self.leader].memory
        if isinstance(memory, connect.Memory) and memory.delay.planned_ms is not None:
            planned_ms = max(self.now_ms, memory.delay.planned_ms)
        left_ms = planned_ms - self.now_ms
        choices = [1, 40, left_ms // 2, left_ms, left_ms, max(0, left_ms - 1), left_ms + 1]
        # A clock on a wall may be set back.
        self.now_ms = max(1, self.now_ms + self.chance.choice([*choices, -3]))

    def lead(self) -> None:
        self.leader = self.chance.choice(list(self.workers))

    def report_twice(self) -> None:
        """Let a worker report work that it or another reports already, or that never existed."""
        works = [work for worker in self.workers.values() for work in worker.held]
        works += ["ghost", TaskId("ghost", 3), TaskId("orders", 77)]
        for work in self.chance.sample(works, min(len(works), self.chance.randint(1, 3))):
            self.chance.choice(list(self.workers.values())).held.append(work)

    def give_up(self) -> None:
        """Let a worker lose its coordinator and stop everything."""
        worker = self.chance.choice(list(self.workers.values()))
        worker.held, worker.last = [], None

    def hold_on(self) -> None:
        """Let a worker go on with work that was revoked."""
        worker = self.chance.choice(list(self.workers.values()))
        if worker.last is not None:
            change = worker.last.change
            worker.held += [*change.revoked_connectors, *change.revoked_tasks]

    def shuffle(self) -> None:
        """Let members join in another order, and one of them report its work in another order."""
        items = list(self.workers.items())
        self.chance.shuffle(items)
        self.workers = dict(items)
        self.chance.shuffle(items[0][1].held)

    # -- rounds --

    def round(self) -> None:
        chance = self.chance
        self.generation += 1
        self.behind = chance.random() < 0.03
        for worker in self.workers.values():
            worker.offset = self.offset
        if self.behind:
            chance.choice(list(self.workers.values())).offset += 1
        ours, javas = self.ours(self.protocol), self.javas(self.protocol)
        self.compare(self.protocol, ours, javas)
        memory = self.workers[self.leader].memory
        if memory is not None:
            assert javas["state"] == as_fields(javas["state"], memory), self.story()
        fails = chance.random()
        for member_id, worker in self.workers.items():
            if fails < 0.05 or (fails < 0.15 and chance.random() < 0.3):
                continue  # its sync fails
            self.take(worker, CODECS[self.protocol].decode_assignment(ours[member_id]))

    def take(self, worker: Worker, assignment: Assignment) -> None:
        change = assignment.change
        gone = {*change.revoked_connectors, *change.revoked_tasks}
        worker.held = [
            *(*change.assigned_connectors, *change.assigned_tasks),
            *(work for work in worker.held if work not in gone),
        ]
        worker.last, worker.completed = assignment, self.generation

    def eager_round(self) -> None:
        self.compare("default", self.ours("default"), self.javas("default"))

    def metadata(self, protocol: str) -> dict[str, bytes]:
        return {
            member_id: metadata_in_its_order(worker)
            if self.mixed and protocol != "default"
            else CODECS[protocol].encode_metadata(worker.metadata())
            for member_id, worker in self.workers.items()
        }

    def ours(self, protocol: str) -> dict[str, bytes]:
        leader = self.workers[self.leader]
        keeps = protocol != "default"
        members = self.metadata(protocol)
        led = lead(
            self.now_ms,
            JoinedGroup(
                group="connect",
                member_id=self.leader,
                generation=self.generation,
                protocol=protocol,
                leader=self.leader,
                members=tuple(GroupMember(*member) for member in members.items()),
            ),
            Leader(
                url=URL,
                delay_left_ms=0,
                last_completed_generation=leader.completed,
                delay_ms_max=self.delay_ms_max,
                memory=leader.memory if keeps else None,
                policy="kip415",
            ),
            WorkView(
                assignment_offset=self.offset,
                config_offset=self.offset,
                connectors={
                    name: 0 if name in self.inconsistent else count
                    for name, count in self.connectors.items()
                },
            ),
        )
        assert not led.unreadable, led.unreadable
        if keeps:
            leader.memory = led.memory
        return dict(led.assignments)

    def javas(self, protocol: str) -> dict[str, Any]:
        return self.java.ask(
            "round",
            leader=self.leader,
            protocol=protocol,
            now_ms=self.now_ms,
            generation=self.generation,
            last_completed_generation=self.workers[self.leader].completed,
            offset=self.offset,
            connectors=self.connectors,
            inconsistent=sorted(self.inconsistent),
            members=[[member, data.hex()] for member, data in self.metadata(protocol).items()],
        )

    def compare(self, protocol: str, ours: dict[str, bytes], javas: dict[str, Any]) -> None:
        assignments, codec = javas["assignments"], CODECS[protocol]
        assert assignments.keys() == ours.keys(), self.story()
        for member_id, data in ours.items():
            theirs = bytes.fromhex(assignments[member_id])
            assert data == theirs, (
                f"{self.story()}\n{member_id} is given by us\n{codec.decode_assignment(data)}\n"
                f"by Java\n{codec.decode_assignment(theirs)}"
            )

    def story(self) -> str:
        return (
            f"generation {self.generation}, {len(self.workers)} workers, led by {self.leader!r}, "
            f"maximum delay {self.delay_ms_max}, at {self.now_ms}; lately: {self.told[-8:]}"
        )


def as_fields(javas: dict[str, Any], memory: object) -> dict[str, Any]:
    """Return our memory as the fields of Java's assignor. A set that is equal is in Java's
    order."""
    assert isinstance(memory, connect.Memory)
    delay = memory.delay
    return {
        "delay": delay.delay_ms,
        "scheduledRebalance": delay.planned_ms or 0,
        "previousGenerationId": memory.generation,
        "revokedInPrevious": delay.revoked,
        "numSuccessiveRevokingRebalances": delay.successive_revocations,
        "candidateWorkersForReassignment": list(delay.candidates),
        "previousMembers": in_order_of(javas["previousMembers"], memory.members),
        "previousAssignment": {
            kind: in_order_of(items, works(memory.owned)[kind])
            for kind, items in javas["previousAssignment"].items()
        },
        "previousRevocation": {
            kind: in_order_of(items, works(memory.revoked)[kind])
            for kind, items in javas["previousRevocation"].items()
        },
    }


def works(owned: Any) -> dict[str, list[Any]]:
    return {
        "connectors": [name for name, numbers in owned.items() if connect.CONNECTOR in numbers],
        "tasks": [
            [name, number]
            for name, numbers in owned.items()
            for number in numbers
            if number != connect.CONNECTOR
        ],
    }


def in_order_of(javas: list[Any], ours: Iterable[Any]) -> list[Any]:
    ours = list(ours)
    same = sorted(map(repr, javas)) == sorted(map(repr, ours))
    return javas if same else ours
