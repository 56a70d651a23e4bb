"""Can `TaskReleased` precede the last action of a body?

Random interleavings of silence, kill, death, late reports and second attempts, with the real
`RunMachine` in the middle. The body is the worst one that the rules allow: see
`support.task.launched_model`.
"""

import random

import pytest
from support.task.launched_model import LIMIT_MS, LaunchedModel

from headgate.task import run as life
from headgate.task.messages import (
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskRunning,
)


class World(LaunchedModel):
    """One run: a launch, its body, a connection, and the runner's machine."""

    def __init__(self, seed: int, machine: type[life.RunMachine]) -> None:
        made = machine(0, LIMIT_MS, 8 * LIMIT_MS, 2 * LIMIT_MS)
        super().__init__(random.Random(seed), made, dies=0.005, freezes=0.03)
        self.reports: list[object] = []
        self.acts_after_release = 0
        self.second_bodies = 0

    def perform(self, output: life.RunOutput) -> None:
        match output:
            case life.Refuse():
                self.connected = False
            case life.Forward(report):
                self.reports.append(report)
            case _:
                super().perform(output)

    def ask(self, calm: bool) -> None:
        rng = self.rng
        if rng.random() < 0.02:
            self.give(life.StopRequested(rng.randrange(0, 2 * LIMIT_MS)))
        if rng.random() < (0.2 if calm else 0.003):
            self.give(life.KillRequested("closing"))
        # Spark's own retry, or an orphan that connects late: never a second body.
        if rng.random() < 0.02 and (self.welcomed or self.machine.released):
            answer = self.machine.handle(self.now, life.HelloReceived(self.local))
            self.second_bodies += answer.count(life.Welcome())

    def act(self) -> None:
        if any(isinstance(report, TaskReleased) for report in self.reports):
            self.acts_after_release += 1
        if self.connected:
            self.up.append(self.rng.choice((life.Heard(), life.BodyReported(TaskRunning()))))
            if self.rng.random() < 0.03:
                self.finished = self.over = True
                self.up.append(life.BodyReported(TaskEnded(TaskOutcome.STOPPED)))
                self.up.append(life.ConnectionClosed())


def run(seed: int, machine: type[life.RunMachine] = life.RunMachine) -> World:
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
    machine = life.RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
    machine.handle(0, life.HelloReceived(killable=True))
    failed = TaskEnded(TaskOutcome.FAILED, "OSError: disk on fire", "Traceback ...")
    assert machine.handle(10, life.BodyReported(TaskClosing(failed))) == []
    for now in range(20, 5_010, 10):
        assert machine.handle(now, life.Heard()) == machine.handle(now, life.Tick()) == []
    told = "OSError: disk on fire; then it did not stop within 5000 ms: killed"
    assert machine.handle(5_010, life.Tick()) == [
        life.Forward(TaskEnded(TaskOutcome.FAILED, told, "Traceback ...")),
        life.KillLaunched(),
        life.KillBody(),
        life.Disconnect(),
    ]
    assert machine.handle(5_020, life.LaunchOver(None)) == []
    assert machine.handle(5_030, life.BodyDead()) == [life.Forward(TaskReleased())]


def test_a_launch_that_would_end_the_same_again_fails_the_task() -> None:
    for final, outcome in ((False, TaskOutcome.LOST), (True, TaskOutcome.FAILED)):
        machine = life.RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
        ended, released = machine.handle(5, life.LaunchOver("no Headgate there", final))
        assert ended == life.Forward(TaskEnded(outcome, "no Headgate there"))
        assert released == life.Forward(TaskReleased())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Spark: its driver has not answered", "; Spark: its driver has not answered"),
        ("Traceback ...\n  line 7\nOSError: disk on fire\n", "; OSError: disk on fire"),
        (None, ""),
    ],
)
def test_a_body_that_went_with_what_was_launched_is_told_of_with_its_reason(
    error: str | None, told: str
) -> None:
    machine = life.RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
    machine.handle(0, life.HelloReceived(killable=True))
    assert machine.handle(10, life.LaunchOver(error)) == []
    why = f"the connection to it closed without a last word{told}: killed"
    assert machine.handle(20, life.ConnectionClosed())[0] == life.Forward(
        TaskEnded(TaskOutcome.LOST, why)
    )


def test_a_stop_that_is_due_sooner_ends_a_body_that_closes() -> None:
    machine = life.RunMachine(0, LIMIT_MS, 8 * LIMIT_MS, 5_000)
    machine.handle(0, life.HelloReceived(killable=True))
    machine.handle(10, life.BodyReported(TaskClosing(TaskEnded(TaskOutcome.FENCED, "fenced"))))
    assert machine.handle(20, life.StopRequested(0))[0] == life.Forward(
        TaskEnded(TaskOutcome.FENCED, "fenced; then it did not stop within 0 ms: killed")
    )


class _ReleasesWhenLaunchedIsOver(life.RunMachine):
    def _is_quiet(self, now_ms: int) -> bool:
        return True


class _ReleasesWhenClosed(life.RunMachine):
    def _is_quiet(self, now_ms: int) -> bool:
        return not self._connected


class _WelcomesAnybody(life.RunMachine):
    def _hello(self, now_ms: int, killable: bool) -> list[life.RunOutput]:
        self._welcomed = self._killed = self._over = self._ended = False
        return super()._hello(now_ms, killable)


class _ForgetsTheLease(life.RunMachine):
    def _closed(self, now_ms: int) -> list[life.RunOutput]:
        out = super()._closed(now_ms)
        self._lease_end_ms = now_ms
        return out


@pytest.mark.parametrize(
    "mutant",
    [_ReleasesWhenLaunchedIsOver, _ReleasesWhenClosed, _WelcomesAnybody, _ForgetsTheLease],
)
def test_the_model_finds_a_missing_guard(mutant: type[life.RunMachine]) -> None:
    def goes_wrong(seed: int) -> bool:
        world = run(seed, mutant)
        return world.acts_after_release > 0 or world.second_bodies > 0

    assert any(goes_wrong(seed) for seed in range(1_500))
