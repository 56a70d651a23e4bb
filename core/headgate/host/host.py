"""The loop around a herder, the same in a worker, in the simulation, in tests and in your service.

    host = HerderHost(herder, ports, schedule, now_ms)
    host.post(command)      # what has happened
    host.turn()             # decide, and have what was decided performed

`ports` are the world (`headgate.host.ports`). `schedule` says when and where work is done: a worker
has threads, the simulation virtual time, a test holds work back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.herder.herder import Herder
from headgate.herder.messages import Command, Effect
from headgate.host.ports import HostPorts
from headgate.host.work import Work, works


class HostSchedule(Protocol):
    """When and where work is performed."""

    def run(self, work: Work) -> Sequence[Command]:
        """Perform `work` now and give its answers; or see to it that it is performed later, or on
        another thread, and its answers are posted.

        Work of one lane must begin in the order in which it was given. In the lane of the config
        topic the one before must have ended, too.
        """
        ...


class AtOnce:
    """Performs all work at once, where it is given."""

    def run(self, work: Work) -> Sequence[Command]:
        return work.perform()


def _nothing(*_: object) -> None:
    pass


class HerderHost:
    """A herder and its inbox. For one thread, but for `post`."""

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
        """
        Args:
            now_ms: the monotonic clock, as `Herder.handle` has it.
            given: told of each command, with its time, before the herder is: for a journal.
            decided: told of each decision before it is performed.
            checked: have the herder check its tables after each command, as tests do.
        """
        self.herder = herder
        self._ports = ports
        self._schedule = schedule
        self._now_ms = now_ms
        self._given = given
        self._decided = decided
        self._checked = checked
        self.inbox: deque[Command] = deque()
        """Commands that wait for their turn, the oldest first."""

    def post(self, command: Command) -> None:
        """Keep `command` for a turn; from any thread."""
        self.inbox.append(command)

    def turn(self) -> bool:
        """Handle the oldest command of the inbox. False: there is none, or the herder is done."""
        if not self.inbox or self.herder.done:
            return False
        self.handle(self.inbox.popleft())
        return True

    def handle(self, command: Command) -> None:
        """Decide on `command` and perform what comes of it, then all that is known by that."""
        known = deque((command,))
        while known:
            known.extend(self.perform(self._decide(known.popleft())))

    def perform(self, effects: Sequence[Effect]) -> list[Command]:
        """Have `effects`, those of one decision, performed.

        Returns:
            The answers that are known at once. The rest is posted.
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
