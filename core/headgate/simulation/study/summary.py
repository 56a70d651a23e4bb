"""The numbers of a run: made of its facts alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from headgate.ids import TaskId
from headgate.simulation.study import facts as f
from headgate.simulation.study.run import Run

_UP: Final = (f.Change.STARTED, f.Change.AWAKE)


@dataclass(slots=True)
class Outcome:
    """What followed one event, or several of one instant, up to the next one. Times are
    milliseconds."""

    event: int
    """Number of the (first) event by time, from 0; -1 for the start."""
    text: str
    at_ms: int
    rebalances: int = 0
    moves: int = 0
    """Tasks that began to run on another worker than before."""
    restarts: int = 0
    """Tasks that were started anew on the worker that had run them."""
    not_running_ms: int = 0
    """Time that tasks did not run although they should, summed over the tasks."""
    longest_ms: int = 0
    """The longest time that one task did not run, if that began here."""
    twice_ms: int = 0
    """Time that a task ran on two workers, summed over the tasks."""
    running_ms: int | None = 0
    """From the event until all tasks ran for good; 0: all went on. None: not before the next."""
    balanced_ms: int | None = 0
    """From the event until all tasks ran and were shared evenly, for good; likewise."""
    imbalance: int = 0
    """At the end: tasks of the worker that ran most, less those of the one that ran fewest."""
    imbalance_max: int = 0
    """The greatest of all instants."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers. Totals leave the start out; times are milliseconds."""

    seed: int
    ended_ms: int
    settled: bool
    """`Run.settled`."""
    outcomes: tuple[Outcome, ...]
    """The start first, then each event."""

    @property
    def events(self) -> tuple[Outcome, ...]:
        return self.outcomes[1:]

    @property
    def rebalances(self) -> int:
        return sum(one.rebalances for one in self.events)

    @property
    def moves(self) -> int:
        return sum(one.moves for one in self.events)

    @property
    def restarts(self) -> int:
        return sum(one.restarts for one in self.events)

    @property
    def not_running_ms(self) -> int:
        return sum(one.not_running_ms for one in self.events)

    @property
    def longest_ms(self) -> int:
        return max((one.longest_ms for one in self.events), default=0)

    @property
    def twice_ms(self) -> int:
        return sum(one.twice_ms for one in self.events)

    @property
    def running_ms(self) -> int | None:
        """The longest of the events; None: after one it was not reached."""
        return _longest([one.running_ms for one in self.events])

    @property
    def balanced_ms(self) -> int | None:
        """Likewise."""
        return _longest([one.balanced_ms for one in self.events])

    @property
    def imbalance(self) -> int:
        return self.outcomes[-1].imbalance

    @property
    def imbalance_max(self) -> int:
        return max((one.imbalance_max for one in self.events), default=0)


def summary_of(run: Run) -> Summary:
    """The numbers of `run`. Cost: O(F * (T + W)) for F facts, T tasks, W workers."""
    count = _Count()
    for at_ms, group in groupby(run.facts, key=lambda fact: fact.at_ms):
        count.until(at_ms)
        for fact in group:
            count.take(fact)
        count.look()
    count.until(run.ended_ms)
    count.end()
    return Summary(run.seed, run.ended_ms, run.settled, tuple(count.outcomes))


class _Count:
    """Walks the facts, with what is true at the time."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._now_ms = 0
        self._up: set[str] = set()
        self._wanted: frozenset[TaskId] = frozenset()
        self._runs: dict[TaskId, set[str]] = {}
        self._last: dict[TaskId, tuple[str, str]] = {}
        """Worker and run that a task last ran in."""
        self._missing: dict[TaskId, tuple[int, Outcome]] = {}
        """Tasks that do not run and should: since when, and after which event that began."""
        self._twice = 0
        self._works: Mapping[str, int] = {}
        """Connectors and tasks together, by the last rebalance."""
        self._running = self._balanced = True

    def until(self, at_ms: int) -> None:
        """Time passes, and nothing changes."""
        if self.outcomes:
            passed_ms = at_ms - self._now_ms
            self.outcomes[-1].not_running_ms += passed_ms * len(self._missing)
            self.outcomes[-1].twice_ms += passed_ms * self._twice
        self._now_ms = at_ms

    def take(self, fact: f.Fact) -> None:
        match fact:
            case f.Happened():
                self._happened(fact)
            case f.WorkerChanged():
                if fact.change in _UP:
                    self._up.add(fact.worker)
                else:
                    self._up.discard(fact.worker)
            case f.Rebalanced():
                self.outcomes[-1].rebalances += 1
                if not fact.failed:
                    self._works = {
                        one.worker: len(one.connectors) + len(one.tasks) for one in fact.members
                    }
            case f.Configured():
                self._wanted = frozenset(fact.tasks)
                known = self._wanted.union(fact.paused)
                self._last = {task: at for task, at in self._last.items() if task in known}
            case f.TaskChanged():
                self._task(fact)
            case _:
                pass

    def _happened(self, fact: f.Happened) -> None:
        """Events of one instant are one: what follows cannot be told apart."""
        last = self.outcomes[-1] if self.outcomes else None
        if last is not None and last.event >= 0 and last.at_ms == fact.at_ms:
            last.text += f"; {fact.text}"
            return
        self._close()
        self.outcomes.append(Outcome(fact.event, fact.text, fact.at_ms))

    def _task(self, fact: f.TaskChanged) -> None:
        on = self._runs.setdefault(fact.task, set())
        if not fact.runs:
            on.discard(fact.worker)
            return
        on.add(fact.worker)
        worker, run = self._last.get(fact.task, (fact.worker, fact.run))
        self._last[fact.task] = fact.worker, fact.run
        if worker != fact.worker:
            self.outcomes[-1].moves += 1
        elif run != fact.run:
            self.outcomes[-1].restarts += 1

    def look(self) -> None:
        """All facts of this instant are taken."""
        outcome = self.outcomes[-1]
        missing = {task for task in self._wanted if not self._runs.get(task)}
        for task in [task for task in self._missing if task not in missing]:
            self._over(task)
        for task in missing:
            self._missing.setdefault(task, (self._now_ms, outcome))
        self._twice = sum(len(on) > 1 for on in self._runs.values())
        spread = self._spread()
        outcome.imbalance = spread
        outcome.imbalance_max = max(outcome.imbalance_max, spread)
        running = not missing
        balanced = running and not self._twice and self._even(spread)
        if running and not self._running:
            outcome.running_ms = self._now_ms - outcome.at_ms
        if balanced and not self._balanced:
            outcome.balanced_ms = self._now_ms - outcome.at_ms
        self._running, self._balanced = running, balanced

    def _spread(self) -> int:
        counts = dict.fromkeys(self._up, 0)
        for on in self._runs.values():
            for worker in on & self._up:
                counts[worker] += 1
        return max(counts.values(), default=0) - min(counts.values(), default=0)

    def _even(self, spread: int) -> bool:
        """Tasks alone, as Connect's policy shares them; or connectors and tasks together, as
        KIP-415's tables do."""
        if spread <= 1:
            return True
        works = self._works.values()
        return set(self._works) == self._up and max(works) - min(works) <= 1

    def _over(self, task: TaskId) -> None:
        since_ms, outcome = self._missing.pop(task)
        outcome.longest_ms = max(outcome.longest_ms, self._now_ms - since_ms)

    def _close(self) -> None:
        """The last event's time is over."""
        if not self.outcomes:
            return
        if not self._running:
            self.outcomes[-1].running_ms = None
        if not self._balanced:
            self.outcomes[-1].balanced_ms = None

    def end(self) -> None:
        self._close()
        for task in list(self._missing):
            self._over(task)


def _longest(times: Sequence[int | None]) -> int | None:
    longest = 0
    for each in times:
        if each is None:
            return None
        longest = max(longest, each)
    return longest


MEASURES: Final[Mapping[str, str]] = {
    "rebalances": "rebalances",
    "moves": "moves of tasks",
    "restarts": "restarts of tasks in place",
    "not_running_ms": "tasks not running, in all",
    "longest_ms": "longest of one task",
    "twice_ms": "tasks running twice, in all",
    "running_ms": "until all run again, longest",
    "balanced_ms": "until balanced again, longest",
    "imbalance_max": "greatest imbalance",
    "imbalance": "imbalance at the end",
}
"""Numbers of a `Summary` and of an `Outcome`, and what each says."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The same study with several seeds."""

    summaries: tuple[Summary, ...]
    """At least one."""

    def median(self, measure: str) -> int | None:
        """The middle value of a measure, the higher one of two; None: not reached.

        Args:
            measure: a key of `MEASURES`.
        """
        values = self._sorted(measure)
        return values[len(values) // 2][0]

    def worst(self, measure: str) -> tuple[int | None, int]:
        """The greatest value of a measure, and the first seed that has it. None, which is worse
        than any number: not reached."""
        values = self._sorted(measure)
        worst = values[-1][0]
        return next(pair for pair in values if pair[0] == worst)

    def texts(self) -> tuple[str, ...]:
        """Events, those of one instant as one."""
        return tuple(one.text for one in self.summaries[0].events)

    def event(self, row: int) -> "Runs":
        """The same of one of `texts` alone, by its place from 0; -1 for the start."""
        return Runs(
            tuple(
                Summary(one.seed, one.ended_ms, one.settled, (_NONE, one.outcomes[row + 1]))
                for one in self.summaries
            )
        )

    def _sorted(self, measure: str) -> list[tuple[int | None, int]]:
        pairs = [(getattr(one, measure), one.seed) for one in self.summaries]
        return sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0, pair[1]))


_NONE: Final = Outcome(-1, "", 0)


def runs_of(summaries: Iterable[Summary]) -> Runs:
    """Raises ValueError if there are none."""
    found = tuple(summaries)
    if not found:
        raise ValueError("no runs: expected at least one seed")
    return Runs(found)
