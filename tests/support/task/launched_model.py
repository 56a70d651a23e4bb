"""A model of the worst launched process that the rules allow, between a launcher and a runner's
machine.

On the worker's machine, the process acts whenever it is alive, awake and welcomed, however long it
was frozen. On another machine, it acts until its own limit has passed.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from headgate.task.run import (
    BodyDead,
    ConnectionClosed,
    Disconnect,
    HelloReceived,
    KillBody,
    KillLaunched,
    LaunchOver,
    Tick,
    Welcome,
)

LIMIT_MS = 100
STEP_MS = 10


class LaunchedModel(ABC):
    """A launch, the process that it starts, a connection, and the machine that judges both.

    Subclasses say what the process does (`act`), what is asked of the machine (`ask`), and how its
    other outputs are performed (`perform`).

    Args:
        machine: a `RunMachine`, or one around it.
        dies: chance in a step that the process dies.
        freezes: chance in a step that the process is stopped or goes on.
    """

    def __init__(self, rng: random.Random, machine: Any, *, dies: float, freezes: float) -> None:
        self.rng = rng
        self.now = 0
        self.machine = machine
        self.dies, self.freezes = dies, freezes
        self.local = rng.random() < 0.7
        self.outlives = rng.random() < 0.5  # the process outlives what was launched (Spark)
        self.up: deque[Any] = deque()
        self.alive, self.frozen, self.said_hello = True, False, False
        self.welcomed = self.finished = self.connected = False
        self.heard_ms = 0
        self.over = self.over_told = self.dying = False
        self.worker_frozen_until = -1

    @abstractmethod
    def act(self) -> None:
        """Act as the process. Called in each step in which the process is welcomed and awake."""

    @abstractmethod
    def ask(self, calm: bool) -> None:
        """Act as the worker. Called in each step in which the worker is awake."""

    # -- the worker's side --

    def give(self, given: Any) -> None:
        for output in self.machine.handle(self.now, given):
            self.perform(output)

    def perform(self, output: Any) -> None:
        match output:
            case Welcome():
                self.welcomed, self.heard_ms = True, self.now
            case KillLaunched():
                self.over = True
                self.dying = self.dying or not self.outlives
            case KillBody():
                self.dying = True
            case Disconnect():
                self.connected = False
                self.up.append(ConnectionClosed())
            case _:
                raise AssertionError(f"{output} is not performed")

    def step(self, calm: bool) -> None:
        """Do one step. If `calm`, no new fault begins, so all must come to an end."""
        self.now += STEP_MS
        rng = self.rng
        if self._wakes(calm):
            self.act()
        if rng.random() < 0.02 and not calm:
            self.worker_frozen_until = self.now + rng.randrange(0, 4 * LIMIT_MS)
        if self.now < self.worker_frozen_until:
            return
        if self.connected and self.alive and not self.frozen:
            self.heard_ms = self.now
        while self.up and rng.random() < 0.8:
            self.give(self.up.popleft())
        if self.over and not self.over_told and rng.random() < 0.5:
            self.over_told = True
            self.give(LaunchOver("job failed" if rng.random() < 0.5 else None, rng.random() < 0.2))
        if not self.alive and self.machine.watching_pid:
            self.give(BodyDead())
        self.ask(calm)
        self.give(Tick())

    # -- the process --

    def _wakes(self, calm: bool) -> bool:
        rng = self.rng
        if (self.dying and rng.random() < 0.3) or rng.random() < self.dies:
            self.die()
        if self.over and not self.outlives:
            self.die()
        if not self.alive:
            self.over = True
            return False
        if self.local and not calm and rng.random() < self.freezes:
            self.frozen = not self.frozen
        if self.frozen or self.finished:
            return False
        if not self.said_hello:
            if rng.random() < 0.2:
                self.said_hello = self.connected = True
                self.up.append(HelloReceived(self.local))
            return False
        if not self.welcomed:
            return False
        if not self.local and self.now - self.heard_ms > 2 * LIMIT_MS - STEP_MS:
            self.die()
            return False
        return True

    def die(self) -> None:
        if self.alive:
            self.alive = False
            if self.connected and not self.finished:
                self.up.append(ConnectionClosed())
            self.connected = False
