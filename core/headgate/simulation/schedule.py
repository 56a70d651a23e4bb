"""Virtual time: what happens next, and the one source of chance."""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]


class Schedule:
    """Actions in virtual time. Those of one instant happen in the order in which they were planned.

    Everything random in a run comes from `chance`, so a seed is a whole run.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Action]] = []
        self._planned = 0

    def after(self, delay_ms: int, action: Action) -> None:
        self._planned += 1
        heappush(self._heap, (self.now_ms + max(delay_ms, 0), self._planned, action))

    def soon(self, action: Action, most_ms: int = 20) -> None:
        """Within `most_ms`, at a random instant: a message, an answer."""
        self.after(self.chance.randint(0, most_ms), action)

    def likely(self, probability: float) -> bool:
        return self.chance.random() < probability

    def step(self) -> bool:
        """Take the next action; False when there is none."""
        if not self._heap:
            return False
        self.now_ms, _, action = heappop(self._heap)
        self.steps += 1
        action()
        return True
