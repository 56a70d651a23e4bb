"""The loop around a herder, the same in a worker, in the simulation, in tests and in your service.

    host = HerderHost(herder, ports, schedule, now_ms)
    host.post(command)      # what has happened
    host.turn()             # decide, and have the effects performed

`ports` are the interfaces to the world (`headgate.host.ports`). `schedule` decides when and where
work is performed: a worker has threads, the simulation has virtual time, a test holds work back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.herder.herder import Herder
from headgate.herder.messages import Command, Effect
from headgate.host.ports import HostPorts
from headgate.host.work import Work, works


class HostSchedule(Protocol):
    """Decides when and where work is performed."""

    def run(self, work: Work) -> Sequence[Command]:
        """Perform `work` now and return its answers. Or arrange that it is performed later or on
        another thread, and that its answers are posted; then return no answers.

        Work of one lane must begin in the order in which it was passed. In the lane of the config
        topic the previous work must also have ended.
        """
        ...


class AtOnce:
    """Performs all work at once, on the calling thread."""

    def run(self, work: Work) -> Sequence[Command]:
        return work.perform()


def _nothing(*_: object) -> None:
    pass


class HerderHost:
    """A herder and its inbox. All methods except `post` belong to one thread."""

    def __init__(
        self,
        herder: Herder,
        ports: HostPorts,
        schedule: HostSchedule,
        now_ms: Callable[[], int],
        *,
        given: Callable[[int, Command], None] = _nothing,
        decided: Callable[[Command, Sequence[Effect]], None] = _nothing,
        checked: bool = False,
    ) -> None:
        """Make the loop; it does nothing until `turn`, `handle` or `perform` is called.

        Args:
            now_ms: The monotonic clock, as for `Herder.handle`.
            given: Called with each command and its time before the herder handles it, for a
                journal.
            decided: Called with each decision before it is performed.
            checked: Whether the herder checks its tables after each command, as in tests.
        """
        self.herder = herder
        self._ports = ports
        self._schedule = schedule
        self._now_ms = now_ms
        self._given = given
        self._decided = decided
        self._checked = checked
        self.inbox: deque[Command] = deque()
        """Commands that wait for their turn, oldest first."""

    def post(self, command: Command) -> None:
        """Append `command` to the inbox. May be called from any thread."""
        self.inbox.append(command)

    def turn(self) -> bool:
        """Handle the oldest command of the inbox. Return False if there is none, or the herder is
        done."""
        if not self.inbox or self.herder.done:
            return False
        self.handle(self.inbox.popleft())
        return True

    def handle(self, command: Command) -> None:
        """Decide on `command` and perform the effects; then handle the answers that are known at
        once, until there are no more."""
        known = deque((command,))
        while known:
            known.extend(self.perform(self._decide(known.popleft())))

    def perform(self, effects: Sequence[Effect]) -> list[Command]:
        """Have the `effects` of one decision performed.

        Returns:
            The answers that are known at once. The others are posted.
        """
        answers: list[Command] = []
        for work in works(effects, self._ports):
            answers.extend(self._schedule.run(work))
        return answers

    def _decide(self, command: Command) -> Sequence[Effect]:
        now_ms = self._now_ms()
        self._given(now_ms, command)
        effects = self.herder.handle(now_ms, command)
        if self._checked:
            self.herder.check()
        self._decided(command, effects)
        return effects
