"""Records per second of tasks, computed from counts that start over with each run of a task."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.ids import TaskId

WINDOW_S = 5.0


@dataclass(slots=True)
class _Meter:
    last: int
    total: int
    samples: deque[tuple[float, int]] = field(default_factory=deque)


class Rates:
    """Record totals since this `headgate up` began to look, and rates over the last seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._meters: dict[TaskId, _Meter] = {}

    def update(self, at: float, counts: Mapping[TaskId, int]) -> None:
        """Note the counts of the runs that are seen now. `at` is in monotonic seconds."""
        for task, count in counts.items():
            meter = self._meters.get(task)
            if meter is None:
                meter = self._meters[task] = _Meter(last=count, total=count)
            else:
                # A lower count belongs to a new run, all of whose records are new.
                meter.total += count - meter.last if count >= meter.last else count
                meter.last = count
            meter.samples.append((at, meter.total))
            while len(meter.samples) > 2 and meter.samples[1][0] <= at - self._window_s:
                meter.samples.popleft()

    def total(self, task: TaskId) -> int:
        meter = self._meters.get(task)
        return meter.total if meter else 0

    def per_second(self, task: TaskId, at: float) -> float:
        """Return the records per second. It is 0 for a task that was not seen within the window."""
        meter = self._meters.get(task)
        if meter is None or len(meter.samples) < 2 or meter.samples[-1][0] < at - self._window_s:
            return 0.0
        (then, before), (now, after) = meter.samples[0], meter.samples[-1]
        return (after - before) / (now - then) if now > then else 0.0
