"""Laws of the policy `kip415` over whole histories of a group: members come, go, bounce and freeze,
connectors appear and go, syncs fail, leaders change."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.assignment import kip415
from headgate.assignment.model import MemberWork, Round, RoundInput, Work
from headgate.ids import TaskId

DELAY_MS = 1_000
CONNECTORS = ["a", "b", "\U0001f400", "\uffee"]  # the last two sort differently in UTF-16

WHAT = ["join", "leave", "bounce", "config", "time", "fail", "lead", "slow"]
# One thing that happens before a round: a letter and an argument.
happenings = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 7)),
    max_size=3,
)


@dataclass
class Group:
    """What a group of well-behaved members holds, round after round."""

    delay_ms_max: int = DELAY_MS
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
        """One round; `slow` members go on stopping what it revokes until the next but one."""
        given_ = self.input()
        done = kip415.assign(given_, self.memory)
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


def check_round(given_: RoundInput, done: Round) -> None:
    reported = Counter(
        work for member in given_.members for work in works(given_, member.member_id)
    )
    after: Counter[Work] = Counter()
    revoked_all: set[Work] = set()
    for name, change in done.members.items():
        assigned = [*change.assigned_connectors, *change.assigned_tasks]
        revoked = {*change.revoked_connectors, *change.revoked_tasks}
        # Added only when no live member holds it; disjoint; revoked is what it has.
        assert not any(reported[work] for work in assigned)
        assert not revoked & set(assigned)
        assert revoked <= set(works(given_, name))
        assert list(change.assigned_tasks) == sorted(change.assigned_tasks, key=task_key)
        revoked_all |= revoked
        after.update(assigned)
        after.update(set(works(given_, name)) - revoked)
    assert all(count == 1 for count in after.values()), "one owner"
    wanted = configured(dict(given_.connectors))
    assert set(after) <= wanted, "deleted work is revoked"
    memory = done.memory
    assert isinstance(memory, kip415.Memory)
    # Nothing lost: everything is owned, or revoked just now, or waits for a delay that runs.
    assert wanted - set(after) - revoked_all == set(memory.waiting)
    assert bool(memory.waiting) == (done.delay_ms > 0)
    assert 0 <= done.delay_ms <= given_.delay_ms_max


def task_key(task: TaskId) -> tuple[bytes, int]:
    return task.connector.encode("utf-16-be"), task.task


@settings(max_examples=150, deadline=None)
@given(st.lists(happenings, max_size=12), st.sampled_from([0, DELAY_MS]))
def test_every_round_keeps_the_laws(history: list[list[tuple[str, int]]], delay_ms: int) -> None:
    group = Group(delay_ms_max=delay_ms)
    for before in history:
        for what, n in before:
            group.happen(what, n)
        check_round(*group.round(slow=("slow", 0) in before))


@settings(max_examples=100, deadline=None)
@given(st.lists(happenings, max_size=8))
def test_it_settles_balanced_within_the_delay_and_two_rounds_and_stays_put(
    history: list[list[tuple[str, int]]],
) -> None:
    group = Group()
    for before in history:
        for what, n in before:
            group.happen(what, n)
        group.round()
    # From here on nothing happens but what members do by themselves: join at the planned time, and
    # join again after a revocation.
    _, done = group.round()
    group.now_ms += done.delay_ms
    group.round()
    group.round()
    counts = [len(held) for held in group.held.values()]
    assert set().union(*map(set, group.held.values())) == group.configured()
    assert max(counts) - min(counts) <= 1, "balance"
    for _ in range(2):
        before_held = {name: set(held) for name, held in group.held.items()}
        _, done = group.round()
        assert done.delay_ms == 0
        assert {name: set(held) for name, held in group.held.items()} == before_held


@settings(max_examples=60, deadline=None)
@given(st.lists(happenings, min_size=1, max_size=6))
def test_the_order_of_joining_and_of_reporting_does_not_matter(
    history: list[list[tuple[str, int]]],
) -> None:
    group = Group()
    for before in history:
        for what, n in before:
            group.happen(what, n)
        given_ = group.input()
        turned = RoundInput(
            members=tuple(turn(member) for member in reversed(given_.members)),
            leader=given_.leader,
            generation=given_.generation,
            last_completed_generation=given_.last_completed_generation,
            connectors=dict(reversed(given_.connectors.items())),
            delay_ms_max=given_.delay_ms_max,
            now_ms=given_.now_ms,
        )
        assert kip415.assign(given_, group.memory) == kip415.assign(turned, group.memory)
        group.round()


def turn(member: MemberWork) -> MemberWork:
    return MemberWork(
        member.member_id,
        tuple(reversed(member.connectors)),
        tuple(reversed(member.tasks)),
        member.last_delay_ms,
        member.delay_left_ms,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=5))
def test_departures_never_extend_a_delay(times_ms: list[int]) -> None:
    """Whatever leaves after the first, the work is placed at the first one's time."""
    group = Group(connectors={"a": 9}, held={f"w{n}": [] for n in range(8)}, came=8)
    group.round()
    group.happen("leave", 3)
    _, first = group.round()
    assert first.delay_ms == DELAY_MS
    for at_ms in sorted(times_ms):
        group.now_ms = min(at_ms, DELAY_MS - 1)
        group.happen("leave", 1)
        if len(group.held) == 1:
            break
        _, done = group.round()
        assert group.leader == "w0"
        assert done.delay_ms == DELAY_MS - group.now_ms
    group.now_ms = DELAY_MS
    _, done = group.round()
    assert done.delay_ms == 0
