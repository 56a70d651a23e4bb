"""A group over a whole history, for the laws of assignment.

Members join, leave, bounce, stop slowly, report nothing, or report what others have. Connectors
appear and disappear, syncs fail, and the leader changes.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from headgate.assignment import kip415
from headgate.assignment.model import MemberWork, Policy, Round, RoundInput, Work
from headgate.ids import TaskId

DELAY_MS = 1_000
CONNECTORS = ["a", "b", "\U0001f400", "\uffee"]  # the last two sort differently in UTF-16

WHAT = ["join", "leave", "bounce", "config", "time", "fail", "lead", "slow", "drop", "double"]
# One thing that happens before a round: a letter and an argument.
happenings = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 7)),
    max_size=3,
)


@dataclass
class Group:
    """The work that a group of well-behaved members holds, round after round."""

    delay_ms_max: int = DELAY_MS
    policy: Policy = kip415.assign
    now_ms: int = 0
    generation: int = 0
    completed: int = -1
    leader: str = "w0"
    memory: object | None = None
    connectors: dict[str, int] = field(default_factory=lambda: {"a": 2, "b": 1})
    held: dict[str, list[Work]] = field(default_factory=lambda: {"w0": []})
    stopping: dict[str, list[Work]] = field(default_factory=dict)
    told: dict[str, tuple[int, int]] = field(default_factory=dict)
    came: int = 1

    def happen(self, what: str, n: int) -> None:
        names = list(self.held)
        match what:
            case "join":
                self.held[f"w{self.came}"] = []
                self.came += 1
            case "leave" | "bounce" if len(names) > 1:
                self.forget(names[n % len(names)])
                if what == "bounce":
                    self.happen("join", n)
            case "config":
                name = CONNECTORS[n % 4]
                if n < 4 and name in self.connectors:
                    del self.connectors[name]
                else:
                    self.connectors[name] = n % 5
            case "time":
                self.now_ms += n * DELAY_MS // 4
            case "drop":
                # It lost its coordinator and stopped everything.
                self.held[names[n % len(names)]] = []
            case "double":
                # It was frozen, and others were given its work.
                works = [work for held in self.held.values() for work in held]
                name = names[n % len(names)]
                if works and works[n % len(works)] not in self.held[name]:
                    self.held[name].append(works[n % len(works)])
            case "fail":
                self.completed = -1
            case "lead":
                self.leader, self.memory = names[n % len(names)], None
            case _:
                pass

    def forget(self, name: str) -> None:
        del self.held[name]
        self.stopping.pop(name, None)
        self.told.pop(name, None)
        if self.leader == name:
            self.leader, self.memory = next(iter(self.held)), None

    def input(self) -> RoundInput:
        return RoundInput(
            members=tuple(self.member(name) for name in self.held),
            leader=self.leader,
            generation=self.generation + 1,
            last_completed_generation=self.completed,
            connectors=self.connectors,
            delay_ms_max=self.delay_ms_max,
            now_ms=self.now_ms,
        )

    def member(self, name: str) -> MemberWork:
        works = [*self.held[name], *self.stopping.get(name, [])]
        last_delay_ms, ends_ms = self.told.get(name, (0, 0))
        return MemberWork(
            name,
            tuple(work for work in works if isinstance(work, str)),
            tuple(work for work in works if isinstance(work, TaskId)),
            last_delay_ms=last_delay_ms,
            delay_left_ms=max(0, ends_ms - self.now_ms),
        )

    def round(self, slow: bool = False) -> tuple[RoundInput, Round]:
        """Compute one round. With `slow`, members go on stopping the revoked work until the round
        after the next."""
        given_ = self.input()
        done = self.policy(given_, self.memory)
        self.stopping = {}
        for name, change in done.members.items():
            gone = {*change.revoked_connectors, *change.revoked_tasks}
            kept = [work for work in works(given_, name) if work not in gone]
            if slow:
                self.stopping[name] = sorted(gone, key=str)
            self.held[name] = [*kept, *change.assigned_connectors, *change.assigned_tasks]
            self.told[name] = (done.delay_ms, self.now_ms + done.delay_ms)
        self.generation = self.completed = given_.generation
        self.memory = done.memory
        return given_, done

    def configured(self) -> set[Work]:
        return configured(self.connectors)


def configured(connectors: dict[str, int]) -> set[Work]:
    tasks = {TaskId(name, n) for name, count in connectors.items() for n in range(count)}
    return {*connectors, *tasks}


def works(given_: RoundInput, name: str) -> list[Work]:
    member = next(member for member in given_.members if member.member_id == name)
    return [*member.connectors, *member.tasks]
