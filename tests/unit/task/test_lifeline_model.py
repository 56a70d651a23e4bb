"""Can `TaskReleased` precede the last thing a body does? Random interleavings of silence, kill,
death, late words and second attempts, with the real `RunMachine` in the middle.

The body is the worst one that the rules allow: see `support.task.launched_model`.
"""

import random

import pytest
from support.task.launched_model import LIMIT_MS, LaunchedModel

from headgate.task.messages import (
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskRunning,
)
from headgate.task.run import (
    BodyDead,
    BodyReported,
    ConnectionClosed,
    Disconnect,
    Forward,
    Heard,
    HelloReceived,
    KillBody,
    KillLaunched,
    KillRequested,
    LaunchOver,
    Refuse,
    RunMachine,
    RunOutput,
    StopRequested,
    Tick,
    Welcome,
)


class World(LaunchedModel):
    """One run: a launched thing, the body in it, a connection, and the runner's machine."""

    def __init__(self, seed: int, machine: type[RunMachine]) -> None:
        made = machine(0, LIMIT_MS, 8 * LIMIT_MS, 2 * LIMIT_MS)
        super().__init__(random.Random(seed), made, dies=0.005, freezes=0.03)
        self.reports: list[object] = []
        self.acts_after_release = 0
        self.second_bodies = 0

    def perform(self, output: RunOutput) -> None:
        match output:
            case Refuse():
                self.connected = False
            case Forward(report):
                self.reports.append(report)
            case _:
                super().perform(output)

    def ask(self, calm: bool) -> None:
        rng = self.rng
        if rng.random() < 0.02:
            self.give(StopRequested(rng.randrange(0, 2 * LIMIT_MS)))
        if rng.random() < (0.2 if calm else 0.003):
            self.give(KillRequested("closing"))
        # Spark's own retry, or an orphan that connects late: never a second body.
        if rng.random() < 0.02 and (self.welcomed or self.machine.released):
            answer = self.machine.handle(self.now, HelloReceived(self.local))
            self.second_bodies += answer.count(Welcome())

    def act(self) -> None:
        if any(isinstance(report, TaskReleased) for report in self.reports):
            self.acts_after_release += 1
        if self.connected:
            self.up.append(self.rng.choice((Heard(), BodyReported(TaskRunning()))))
            if self.rng.random() < 0.03:
                self.finished = self.over = True
                self.up.append(BodyReported(TaskEnded(TaskOutcome.STOPPED)))
                self.up.append(ConnectionClosed())


def run(seed: int, machine: type[RunMachine] = RunMachine) -> World:
    world = World(seed, machine)
    for _ in range(150):
        world.step(calm=False)
    for _ in range(400):  # liveness: once the faults stop, the run is released
        world.step(calm=True)
    return world


def test_released_never_precedes_the_last_act_and_always_comes() -> None:
    outcomes: dict[str, int] = {}
    for seed in range(1_500):
        world = run(seed)
        ends = [report for report in world.reports if isinstance(report, TaskEnded)]
        assert world.acts_after_release == 0, f"seed {seed}"
        assert world.second_bodies == 0, f"seed {seed}"
        assert len(ends) == 1, f"seed {seed}: {world.reports}"
        assert world.reports[-1] == TaskReleased(), f"seed {seed}: {world.reports[-3:]}"
        assert world.reports.count(TaskReleased()) == 1, f"seed {seed}"
        outcomes[ends[0].outcome] = outcomes.get(ends[0].outcome, 0) + 1
    assert min(outcomes["stopped"], outcomes["lost"]) > 50  # the model went both ways


def test_a_body_that_hangs_after_a_failure_is_killed_with_its_own_words() -> None:
    """Nobody has asked it to stop, and it beats on: only its deadline ends it."""
    machine = RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
    machine.handle(0, HelloReceived(killable=True))
    failed = TaskEnded(TaskOutcome.FAILED, "OSError: disk on fire", "Traceback ...")
    assert machine.handle(10, BodyReported(TaskClosing(failed))) == []
    for now in range(20, 5_010, 10):
        assert machine.handle(now, Heard()) == machine.handle(now, Tick()) == []
    told = "OSError: disk on fire; then it did not stop within 5000 ms: killed"
    assert machine.handle(5_010, Tick()) == [
        Forward(TaskEnded(TaskOutcome.FAILED, told, "Traceback ...")),
        KillLaunched(),
        KillBody(),
        Disconnect(),
    ]
    assert machine.handle(5_020, LaunchOver(None)) == []
    assert machine.handle(5_030, BodyDead()) == [Forward(TaskReleased())]


def test_a_launch_that_would_end_the_same_again_fails_the_task() -> None:
    for final, outcome in ((False, TaskOutcome.LOST), (True, TaskOutcome.FAILED)):
        machine = RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
        ended, released = machine.handle(5, LaunchOver("no Headgate there", final))
        assert ended == Forward(TaskEnded(outcome, "no Headgate there"))
        assert released == Forward(TaskReleased())


def test_a_stop_that_is_due_sooner_ends_a_body_that_closes() -> None:
    machine = RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
    machine.handle(0, HelloReceived(killable=True))
    machine.handle(10, BodyReported(TaskClosing(TaskEnded(TaskOutcome.FENCED, "fenced"))))
    assert machine.handle(20, StopRequested(0))[0] == Forward(
        TaskEnded(TaskOutcome.FENCED, "fenced; then it did not stop within 0 ms: killed")
    )


class _ReleasesWhenLaunchedIsOver(RunMachine):
    def _is_quiet(self, now_ms: int) -> bool:
        return True


class _ReleasesWhenClosed(RunMachine):
    def _is_quiet(self, now_ms: int) -> bool:
        return not self._connected


class _WelcomesAnybody(RunMachine):
    def _hello(self, now_ms: int, killable: bool) -> list[RunOutput]:
        self._welcomed = self._killed = self._over = self._ended = False
        return super()._hello(now_ms, killable)


class _ForgetsTheLease(RunMachine):
    def _closed(self, now_ms: int) -> list[RunOutput]:
        out = super()._closed(now_ms)
        self._lease_end_ms = now_ms
        return out


@pytest.mark.parametrize(
    "mutant",
    [_ReleasesWhenLaunchedIsOver, _ReleasesWhenClosed, _WelcomesAnybody, _ForgetsTheLease],
)
def test_the_model_finds_a_missing_guard(mutant: type[RunMachine]) -> None:
    def goes_wrong(seed: int) -> bool:
        world = run(seed, mutant)
        return world.acts_after_release > 0 or world.second_bodies > 0

    assert any(goes_wrong(seed) for seed in range(1_500))
