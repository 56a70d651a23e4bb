"""CPU of one decision of a herder that holds 100,000 tasks. The budget is typically 1 ms, at most
50 ms."""

import gc
import time
from collections.abc import Callable

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.settings import HerderSettings
from headgate.ids import TargetState, TaskId
from headgate.membership.coordinator import Coordinator
from headgate.membership.messages import GroupResponse
from headgate.task.messages import (
    TaskEnded,
    TaskOutcome,
    TaskProgress,
    TaskReleased,
    TaskReport,
    TaskRunning,
)
from headgate.topics.config_events import (
    ConfigEvent,
    ConnectorConfigured,
    TargetStateChanged,
    TaskConfigured,
    TasksCommitted,
)
from headgate_runtime.worker import collector

CONNECTORS = 1_000
TASKS_EACH = 100
REPEATS = 2_000
STAY_AWAKE_MS = 1_000_000_000


class _Worker:
    """A herder alone in its group. Its log changes only by the commands that are given here."""

    def __init__(self) -> None:
        settings = HerderSettings("bench", "bench:1", session_timeout_ms=STAY_AWAKE_MS)
        self.now_ms = 0
        self.herder = Herder(settings, self.now_ms)
        self._coordinator = Coordinator()
        self.runs: list[str] = []
        self.assigned_ms = 0.0
        self._log: tuple[ConfigEvent, ...] = _log()

    def give(self, command: m.Command) -> float:
        """Give the herder a command. Returns its CPU milliseconds, without those of the effects."""
        began = time.thread_time()
        effects = self.herder.handle(self.now_ms, command)
        took_ms = (time.thread_time() - began) * 1_000
        for effect in effects:
            self._perform(effect)
        return took_ms

    def _perform(self, effect: m.Effect) -> None:
        match effect:
            case m.SendGroup(request):
                for response in self._coordinator.handle(self.now_ms, request, "1"):
                    self._answer(response)
            case m.ReadConfigToEnd(token):
                if self._log:
                    log, self._log = self._log, ()
                    for start in range(0, len(log), 5_000):
                        self.give(m.ConfigRead(log[start : start + 5_000]))
                self.give(m.ConfigEndRead(token))
            case m.StartTask(spec):
                self.runs.append(spec.run)
            case m.ClaimLeadership(generation):
                self.give(m.LeadershipClaimed(generation))
            case _:
                pass

    def _answer(self, response: GroupResponse) -> None:
        took_ms = self.give(m.GroupAnswered(response))
        self.assigned_ms = max(self.assigned_ms, took_ms)

    def start_all(self) -> tuple[float, int, float]:
        """Start all tasks. Returns the milliseconds of the command that brings the assignment, the
        number of commands after it until every task was started, and the milliseconds of the
        slowest of those."""
        commands, slowest_ms = 0, 0.0
        while len(self.runs) < CONNECTORS * TASKS_EACH:
            self.now_ms += 10
            for response in self._coordinator.tick(self.now_ms):
                self._answer(response)
            before = len(self.runs)
            took_ms = self.give(m.Tick())
            if before:
                commands, slowest_ms = commands + 1, max(slowest_ms, took_ms)
        return self.assigned_ms, commands, slowest_ms


def _log() -> tuple[ConfigEvent, ...]:
    events: list[ConfigEvent] = []
    for number in range(CONNECTORS):
        name = f"c{number}"
        config = {"connector.class": "Source", "tasks.max": str(TASKS_EACH)}
        events.append(ConnectorConfigured(len(events), name, config))
        for task in range(TASKS_EACH):
            events.append(TaskConfigured(len(events), name, task, {"task": str(task)}))
        events.append(TasksCommitted(len(events), name, TASKS_EACH))
    return tuple(events)


def run() -> list[str]:
    collector.settle()  # as a worker does
    worker = _Worker()
    worker.give(m.Tick())
    assigned_ms, commands, slowest_ms = worker.start_all()
    lines = [
        f"{len(worker.runs):,} tasks in one round, as its leader: {assigned_ms:.0f} ms at once",
        f"starting them: {commands} commands more, the slowest {slowest_ms:.1f} ms",
    ]
    for run_id in worker.runs:
        worker.give(m.TaskReported(run_id, TaskRunning()))
    runs = worker.runs
    lines += [
        _measured(worker, "tick", lambda _: m.Tick()),
        _measured(
            worker,
            "progress of a task",
            lambda n: m.TaskReported(runs[n * 7 % len(runs)], TaskProgress(n, 0, False)),
        ),
        _measured(worker, "a task is lost", lambda n: _report(runs[n], TaskOutcome.LOST)),
        _measured(worker, "a run is released", lambda n: m.TaskReported(runs[n], TaskReleased())),
        _measured(worker, "a call to pause", _pause),
        _measured(worker, "a call to restart a task", _restart),
        _measured(worker, "a target state is read", _Records()),
    ]
    return lines


def _report(run_id: str, outcome: TaskOutcome) -> m.TaskReported:
    report: TaskReport = TaskEnded(outcome, "killed")
    return m.TaskReported(run_id, report)


def _pause(number: int) -> m.Command:
    call = m.SetTargetState(f"c{number % CONNECTORS}", TargetState.PAUSED)
    return m.Called(f"pause {number}", call)


def _restart(number: int) -> m.Command:
    task = TaskId(f"c{500 + number % 500}", number % TASKS_EACH)
    return m.Called(f"restart {number}", m.RestartTask(task))


class _Records:
    """Makes commands with a target state read from the log. Each pauses or resumes 100 tasks."""

    def __init__(self) -> None:
        self._offset = 1_000_000

    def __call__(self, number: int) -> m.Command:
        self._offset += 1
        paused = number // CONNECTORS % 2 == 0
        target = TargetState.PAUSED if paused else TargetState.STARTED
        return m.ConfigRead((TargetStateChanged(self._offset, f"c{number % CONNECTORS}", target),))


def _measured(worker: _Worker, what: str, command: Callable[[int], m.Command]) -> str:
    gc.collect()
    times = sorted(worker.give(command(number)) for number in range(REPEATS))
    median, worst = times[len(times) // 2], times[-1]
    return f"{what}: median {median:.3f} ms, 99% {times[-REPEATS // 100]:.3f}, worst {worst:.1f} ms"
