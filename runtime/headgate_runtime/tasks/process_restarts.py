"""When a process that ended is started again, and when it is given up."""

from dataclasses import dataclass

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
SETTLED_S = 10.0
"""Seconds after which a process that answered has proven itself. The pauses then start over."""
UNANSWERED_MAX = 5
"""Ends in a row without a single answer after which it is given up: it cannot start at all."""
QUICK_MAX = 30
"""Ends in a row before `SETTLED_S` after which it is given up: it starts, but does not stay."""


@dataclass(slots=True)
class Restarts:
    """Counts the ends of one process in a row. Pure: it is told what happened, and returns what to
    do."""

    unanswered: int = 0
    quick: int = 0

    def ended(self, *, answered: bool, lived_s: float) -> float | None:
        """Count an end. Return the seconds until the next start, or None to give up."""
        if answered and lived_s >= SETTLED_S:
            self.unanswered = self.quick = 0
            return FIRST_PAUSE_S
        self.unanswered = 0 if answered else self.unanswered + 1
        self.quick += 1
        if self.unanswered >= UNANSWERED_MAX or self.quick >= QUICK_MAX:
            return None
        return float(min(FIRST_PAUSE_S * 2 ** (self.quick - 1), LONGEST_PAUSE_S))

    def why(self) -> str:
        """Return why it was given up, after `ended` returned None."""
        if self.unanswered >= UNANSWERED_MAX:
            return f"it ended {self.unanswered} times without having answered once"
        return f"it ended {self.quick} times in a row within {SETTLED_S:.0f} s of its start"
