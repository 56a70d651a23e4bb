"""Commands of the scenarios in ``specs/kip-415`` and ``specs/connect-policy``: rounds of a policy,
told as KIP-415 tells them.

``AC0`` is connector A, ``AT1`` its first task. The KIP counts tasks from 1, we from 0: ``AT1`` is
task ``A-0``. A line is a member and the work it has, in the order in which it reports it. As in the
KIP's tables, the output shows all that a member should run after the round, kept and new, and then
what it must stop.

``configured max-delay=<ms>``: connectors with their task counts, one per line.
``running leader=<member>``: who runs what, as a round long ago left it.
``round at=<ms> leader=<member>``: the members join with what they hold. A member that was not in
the round before is a new process. All others remember the delay they were told, and the leader its
rounds. ``sync-failed`` as a word of a round: the sync of the round before did not reach its leader.
"""

import re
from collections.abc import Iterator

from support.scenarios.runner import Block, World

from headgate.assignment import POLICIES
from headgate.assignment.model import MemberAssignment, MemberWork, Round, RoundInput, Work
from headgate.ids import TaskId

WORK = re.compile(r"(?P<connector>.+?)(?:C0|T(?P<task>[1-9][0-9]*))")


class AssignmentWorld(World):
    policy = ""

    def __init__(self) -> None:
        self.connectors: dict[str, int] = {}
        self.delay_ms_max = 0
        self.generation = 0
        self.completed = -1
        self.leader = ""
        self.memories: dict[str, object] = {}
        """By leader, of its process."""
        self.told: dict[str, tuple[int, int]] = {}
        """By member of the last round: the delay it was told, and when that ends."""

    def do_configured(self, block: Block) -> str:
        self.delay_ms_max = int(block.options["max-delay"])
        self.connectors = {}
        for line in block.input:
            name, count = line.split()
            self.connectors[name] = int(count)
        return f"{sum(self.connectors.values()) + len(self.connectors)} to be owned"

    def do_running(self, block: Block) -> Iterator[str]:
        return self._round(block, now_ms=-(10**9))

    def do_round(self, block: Block) -> Iterator[str]:
        return self._round(block, now_ms=int(block.options["at"]))

    def _round(self, block: Block, now_ms: int) -> Iterator[str]:
        leader = block.options["leader"]
        held = dict(parse_member(line) for line in block.input)
        self._forget(leader, held)
        if "sync-failed" not in block.words:
            self.completed = self.generation
        self.generation += 1
        round_input = RoundInput(
            members=tuple(self._member(name, work, now_ms) for name, work in held.items()),
            leader=leader,
            generation=self.generation,
            last_completed_generation=self.completed,
            connectors=self.connectors,
            delay_ms_max=self.delay_ms_max,
            now_ms=now_ms,
        )
        done = POLICIES[self.policy](round_input, self.memories.get(leader))
        self.memories[leader], self.leader = done.memory, leader
        self.told = dict.fromkeys(held, (done.delay_ms, now_ms + done.delay_ms))
        return self._show(held, done)

    def _forget(self, leader: str, held: dict[str, list[Work]]) -> None:
        """Forget the memory of each member that was not in the round before, since it is a new
        process."""
        for name in held:
            if name not in self.told:
                self.memories.pop(name, None)

    def _member(self, name: str, work: list[Work], now_ms: int) -> MemberWork:
        last_delay_ms, ends_ms = self.told.get(name, (0, now_ms))
        return MemberWork(
            member_id=name,
            connectors=tuple(item for item in work if isinstance(item, str)),
            tasks=tuple(item for item in work if isinstance(item, TaskId)),
            last_delay_ms=last_delay_ms,
            delay_left_ms=max(0, ends_ms - now_ms),
        )

    def _show(self, held: dict[str, list[Work]], done: Round) -> Iterator[str]:
        for name, work in sorted(held.items()):
            change = done.members[name]
            revoked = [*change.revoked_connectors, *change.revoked_tasks]
            runs = {item for item in work if item not in revoked} | set(added(change))
            line = f"{name} runs {show(runs)}"
            yield f"{line}, stops {show(revoked)}" if revoked else line
        yield f"delay {done.delay_ms}"


def added(change: MemberAssignment) -> list[Work]:
    return [*change.assigned_connectors, *change.assigned_tasks]


def parse_member(line: str) -> tuple[str, list[Work]]:
    name, *words = line.split()
    return name, [parse_work(word) for word in words]


def parse_work(word: str) -> Work:
    found = WORK.fullmatch(word)
    assert found, f"{word!r}, expected for example AC0 (connector A) or AT1 (its first task)"
    if found["task"] is None:
        return found["connector"]
    return TaskId(found["connector"], int(found["task"]) - 1)


def show(works: object) -> str:
    words = sorted(
        (work, -1) if isinstance(work, str) else (work.connector, work.task)
        for work in works  # type: ignore[attr-defined]
    )
    return " ".join(f"{name}C0" if n < 0 else f"{name}T{n + 1}" for name, n in words) or "nothing"


class Kip415World(AssignmentWorld):
    policy = "kip415"

    def _forget(self, leader: str, held: dict[str, list[Work]]) -> None:
        super()._forget(leader, held)
        if leader != self.leader:
            # It saw another lead since: it remembers no round of its own.
            self.memories.pop(leader, None)


class ConnectPolicyWorld(AssignmentWorld):
    policy = "connect"


WORLDS = {"connect-policy": ConnectPolicyWorld, "kip-415": Kip415World}
