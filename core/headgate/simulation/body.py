"""What the bodies of tasks have in common in virtual time: delays, freezes, kills, the lifeline.

The machine is the real one; `SourceBody` and `SinkBody` perform its effects.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from headgate.ports import FencedError
from headgate.simulation.schedule import Schedule
from headgate.simulation.sleeper import Sleeper
from headgate.simulation.world import World
from headgate.task.machine import TaskMachine
from headgate.task.messages import BodyReport, TaskCommand, TaskEnded, TaskOutcome, TaskSpec
from headgate.task.steps import Begin, BodyEffect, BodyInput, Failed, LifelineLost, Report

STEP_MS = 60
"""The longest that one effect of a body takes to begin."""


class Body(Sleeper, ABC):
    """One run of one task. `report` goes up the lifeline; the runner calls the rest."""

    def __init__(
        self,
        world: World,
        spec: TaskSpec,
        report: Callable[[BodyReport], None],
        machine: TaskMachine,
    ) -> None:
        super().__init__()
        self.spec = spec
        self._orphaned = False
        self._begun = False
        self._world = world
        self._schedule: Schedule = world.schedule
        self._report = report
        self._machine = machine

    # -- what a kind of task does --

    @abstractmethod
    def _act(self, effect: BodyEffect) -> BodyInput | None:
        """Perform `effect` at this instant; its outcome, if it has one."""

    @abstractmethod
    def _delay_ms(self, effect: BodyEffect) -> int:
        """How long `effect` waits at least before it is performed."""

    # -- what happens to it --

    def begin(self) -> None:
        self._give(Begin())

    def command(self, command: TaskCommand) -> None:
        self._give(command)

    def silence(self, reason: str) -> None:
        """The body's end of the lifeline has been quiet for too long, or is closed."""
        self._give(LifelineLost(reason))

    def die(self) -> None:
        """SIGKILL: nothing it was about to do happens."""
        self.dead = True

    def freeze(self) -> None:
        self.frozen = True

    def orphan(self) -> None:
        """The worker died while the body was frozen: the body ends when it wakes up."""
        self._orphaned = True

    def thaw(self, frozen_ms: int, silence_ms: int) -> None:
        """It goes on where it stood, which may be just before a commit. That its clock has jumped
        or that its worker is gone it notices before that, or a moment later."""
        if self.dead:
            return
        notices = self._notice(frozen_ms, silence_ms)
        if self._schedule.likely(0.5):
            self.wake(before=notices)
        else:
            self.wake(after=notices)

    def _notice(self, frozen_ms: int, silence_ms: int) -> list[Callable[[], None]]:
        if self._orphaned:
            return [self.die]
        if frozen_ms >= silence_ms:
            return [lambda: self._give(LifelineLost("silence while it was frozen"))]
        return []

    # -- the machine and its effects --

    def _give(self, given: BodyInput | TaskCommand) -> None:
        self.when_awake(lambda: self._step(given))

    def _step(self, given: BodyInput | TaskCommand) -> None:
        if isinstance(given, LifelineLost) and not self._begun:
            # A body without a lifeline never begins; its runner sees it end.
            self._report(TaskEnded(TaskOutcome.LOST, given.reason))
            self.die()
        if self._machine.ended or self.dead:
            return
        self._begun = True
        effects = self._machine.handle(self._schedule.now_ms, given)
        self._perform(deque(effects))

    def _perform(self, effects: "deque[BodyEffect]") -> None:
        """Each at an instant of its own; the last one's outcome is the machine's next input."""
        if not effects or self.dead:
            return
        effect = effects.popleft()

        def act() -> None:
            if self._world.faults.freezes_committer(self, effect):
                self._waiting.append(act)
                return
            outcome = self._do(effect)
            if outcome is not None:
                self._schedule.soon(lambda: self._give(outcome), 10)
            if not isinstance(outcome, Failed):
                self._perform(effects)

        if isinstance(effect, Report):
            self.when_awake(act)
            return
        delay = self._delay_ms(effect)
        self._schedule.after(
            delay + self._schedule.chance.randint(1, STEP_MS), lambda: self.when_awake(act)
        )

    def _do(self, effect: BodyEffect) -> BodyInput | None:
        if isinstance(effect, Report):
            self._report(effect.report)
            return None
        try:
            return self._act(effect)
        except FencedError as error:
            return Failed(TaskOutcome.FENCED, str(error))
