"""Does every task of a host get one end and one release, and does no body act after its release?

Random histories of placing, stopping, hanging, silence, kill, death and late reports, with the real
`HostMachine` in the middle. The host is the worst one that the rules allow: each of its threads
acts whenever the process is alive and awake, see `support.task.launched_model`. A thread that was
abandoned may act on.
"""

import random
from collections import Counter, deque

import pytest
from support.task.launched_model import LIMIT_MS, LaunchedModel

from headgate.task.host import (
    AbandonTask,
    BeginTask,
    ForwardTask,
    HostedTask,
    HostInput,
    HostMachine,
    HostOutput,
    Retired,
    TaskPlaced,
    TaskReported,
    TaskStopRequested,
)
from headgate.task.messages import (
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskReport,
    TaskRunning,
)
from headgate.task.run import (
    BodyReported,
    ConnectionClosed,
    Heard,
    HelloReceived,
    KillRequested,
    LaunchOver,
    Refuse,
    Welcome,
)

ROOM = 3
IDLE_MS = 200
SEEDS = 1_500


class Thread:
    """The body of one task in the host."""

    def __init__(self, hangs: bool, for_good: bool) -> None:
        self.hangs, self.for_good = hangs, for_good
        self.stopping = self.abandoned = self.done = False


class World(LaunchedModel):
    """One host: a launch, its process with the threads, a connection, and the machine."""

    def __init__(self, seed: int, machine: type[HostMachine]) -> None:
        made = machine(0, LIMIT_MS, 8 * LIMIT_MS, ROOM, IDLE_MS)
        super().__init__(random.Random(seed), made, dies=0.001, freezes=0.01)
        self.hanging = self.rng.choice((0.0, 0.3, 1.0))
        self.down: deque[HostOutput | str] = deque()
        self.retired = False
        self.placed: list[str] = []
        self.threads: dict[str, Thread] = {}
        self.reports: dict[str, list[TaskReport]] = {}
        self.wrong: Counter[str] = Counter()

    # -- the worker's side --

    def perform(self, output: HostOutput) -> None:
        match output:
            case Refuse():
                self.connected = self.connected and self.welcomed  # it may be the second's
            case ForwardTask(run, report):
                self.reports[run].append(report)
            case BeginTask() | AbandonTask() | Retired():
                if not self.welcomed:
                    self.wrong["said before the welcome"] += 1
                self.down.append(output)
            case _:
                if output == Welcome():
                    self.wrong["a second host"] += self.welcomed or not self.said_hello
                super().perform(output)

    def ask(self, calm: bool) -> None:
        rng = self.rng
        if not calm and rng.random() < 0.15 and self.machine.has_room:
            run = f"w/{len(self.placed)}"
            self.placed.append(run)
            self.reports[run] = []
            self.give(TaskPlaced(run, rng.randrange(0, 2 * LIMIT_MS)))
        if self.placed and rng.random() < (0.3 if calm else 0.04):
            run = rng.choice(self.placed)
            if run in self.threads:
                self.down.append(run)  # the command travels beside the deadline
            self.give(TaskStopRequested(run, rng.randrange(0, 4 * LIMIT_MS)))
        if rng.random() < 0.001 and not calm:
            self.give(KillRequested("closing"))
        # Spark's own retry, or an orphan that connects late: never a second process.
        if rng.random() < 0.02 and (self.welcomed or self.machine.released):
            self.give(HelloReceived(self.local))

    # -- the process --

    def act(self) -> None:
        if self.connected:
            self.serve()
        for run, thread in self.threads.items():
            self.run_on(run, thread)
        self.check_room()

    def serve(self) -> None:
        while self.down and self.rng.random() < 0.8:
            match self.down.popleft():
                case BeginTask(run):
                    if run in self.threads:
                        self.wrong["begun twice"] += 1
                    self.threads[run] = Thread(
                        self.rng.random() < self.hanging, self.rng.random() < 0.5
                    )
                case AbandonTask(run):
                    self.threads[run].abandoned = True
                case Retired():
                    self.retired = True
                case str(run):
                    self.threads[run].stopping = True
                case _:
                    raise AssertionError
        self.up.append(Heard())
        if self.retired:
            if any(not thread.done for thread in self.threads.values()):
                self.wrong["let go with tasks"] += 1
            self.finished = self.over = True
            self.up.append(BodyReported(TaskEnded(TaskOutcome.STOPPED)))
            self.up.append(ConnectionClosed())

    def run_on(self, run: str, thread: Thread) -> None:
        rng = self.rng
        if thread.done:
            return
        # Once its release was told, only what was told to be abandoned may act.
        if TaskReleased() in self.reports[run]:
            self.wrong["acts after its release"] += 1
        if self.connected and rng.random() < 0.1:
            self.up.append(TaskReported(run, TaskRunning()))
        if self.connected and rng.random() < 0.01:
            failed = TaskEnded(TaskOutcome.FAILED, "disk on fire")
            self.up.append(TaskReported(run, TaskClosing(failed)))
            thread.stopping = True
        wakes = thread.abandoned and not thread.for_good and rng.random() < 0.05
        if thread.hangs and not wakes:
            return
        if rng.random() < (0.4 if thread.stopping or thread.abandoned else 0.01):
            thread.done = True
            if self.connected:
                if rng.random() < 0.9:
                    self.up.append(TaskReported(run, TaskEnded(TaskOutcome.STOPPED)))
                self.up.append(TaskReported(run, TaskReleased()))

    def check_room(self) -> None:
        if sum(not thread.done for thread in self.threads.values()) > ROOM:
            self.wrong["more threads than room"] += 1


def run(seed: int, machine: type[HostMachine] = HostMachine) -> World:
    world = World(seed, machine)
    for _ in range(200):
        world.step(calm=False)
    for _ in range(600):  # liveness: once the faults stop, all tasks and the host are released
        world.step(calm=True)
    return world


def faults(world: World) -> Counter[str]:
    found = +world.wrong
    for run_id, reports in world.reports.items():
        kinds = [type(report) for report in reports]
        if kinds.count(TaskEnded) != 1 or kinds.count(TaskReleased) != 1:
            found[f"ends or releases of {run_id}"] += 1
        if kinds[-2:] != [TaskEnded, TaskReleased]:
            found[f"order of {run_id}"] += 1
    if not world.machine.released:
        found["the host is never released"] += 1
    return found


def test_the_tasks_of_a_host_that_no_try_can_bring_up_have_failed() -> None:
    """As lost tasks they would be started for ever. For example, the executors have another version
    of Headgate."""
    machine = HostMachine(0, LIMIT_MS, 8 * LIMIT_MS, ROOM, IDLE_MS)
    for run in ("a", "b"):
        assert machine.handle(0, TaskPlaced(run, 1)) == []
    found = machine.handle(10, LaunchOver("version 1 here, 2 there", final=True))
    ended = TaskEnded(TaskOutcome.FAILED, "version 1 here, 2 there")
    assert found == [
        *(ForwardTask(run, ended) for run in ("a", "b")),
        *(ForwardTask(run, TaskReleased()) for run in ("a", "b")),
    ]


def test_each_task_has_one_end_and_one_release_and_nothing_acts_after_it() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = run(seed)
        assert not faults(world), f"seed {seed}: {faults(world)}"
        for reports in world.reports.values():
            ended, released = reports[-2:]
            assert isinstance(ended, TaskEnded)
            seen[ended.outcome] += 1
            seen["abandoned" if released == TaskReleased(abandoned=True) else "sure"] += 1
        seen["retired"] += world.retired
        seen["died with tasks"] += not world.retired and bool(world.placed)
    assert min(seen.values()) > 100, seen  # the model went all ways
    assert len(seen) == 7, seen


class _ReleasesWithTheThreadsAlive(HostMachine):
    def _stop(self, now_ms: int, run: str, grace_ms: int) -> list[HostOutput]:
        task = self._tasks.get(run)
        if task is None:
            return []
        return self._end(task, TaskOutcome.STOPPED, "") + self._release(task)


class _AbandonsWithoutSayingSo(HostMachine):
    def _release(self, task: HostedTask, *, abandoned: bool = False) -> list[HostOutput]:
        return super()._release(task)


class _FillsWhatItHasAbandoned(HostMachine):
    @property
    def has_room(self) -> bool:
        return not self._leaving and len(self._tasks) < self._room


class _PlacesInWhatIsRetired(HostMachine):
    @property
    def has_room(self) -> bool:
        return not self._given_up and not self._abandoned and len(self._tasks) < self._room


class _KeepsTheAbandoned(HostMachine):
    def _settle(self, now_ms: int) -> list[HostOutput]:
        return [] if self._abandoned else super()._settle(now_ms)


class _BeginsBeforeTheWelcome(HostMachine):
    def _place(self, task: HostedTask) -> list[HostOutput]:
        super()._place(task)
        return self._begin(task)


class _ForwardsAllEnds(HostMachine):
    def _end(self, task: HostedTask, outcome: TaskOutcome, reason: str) -> list[HostOutput]:
        task.ended = False
        return super()._end(task, outcome, reason)


@pytest.mark.parametrize(
    "mutant",
    [
        _ReleasesWithTheThreadsAlive,
        _AbandonsWithoutSayingSo,
        _FillsWhatItHasAbandoned,
        _PlacesInWhatIsRetired,
        _KeepsTheAbandoned,
        _BeginsBeforeTheWelcome,
        _ForwardsAllEnds,
    ],
)
def test_the_model_finds_a_missing_guard(mutant: type[HostMachine]) -> None:
    def goes_wrong(seed: int) -> bool:
        try:
            return bool(faults(run(seed, mutant)))
        except (AssertionError, KeyError):
            return True

    assert any(goes_wrong(seed) for seed in range(SEEDS))


@pytest.mark.parametrize(
    ("told", "crashed"),
    [
        ([ConnectionClosed()], True),
        ([LaunchOver("signal 11"), ConnectionClosed()], True),
        ([KillRequested("closing"), ConnectionClosed()], False),
    ],
)
def test_a_host_that_went_unasked_has_crashed_whoever_told_it_first(
    told: list[HostInput], crashed: bool
) -> None:
    machine = HostMachine(0, LIMIT_MS, 8 * LIMIT_MS, ROOM, IDLE_MS)
    for given in (TaskPlaced("w/1", 100), HelloReceived(killable=True), *told):
        machine.handle(0, given)
    assert machine.crashed is crashed
