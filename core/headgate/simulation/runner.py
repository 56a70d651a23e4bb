"""A worker's task runner in virtual time: the lifeline, its deadlines, kill and release.

The rules are those of `headgate_runtime.tasks`: both ends take silence for the other's death, a
body is released only when it is dead, and a frozen body can be killed but not stopped.
"""

from collections.abc import Callable
from functools import partial

from headgate.herder.messages import TaskReported
from headgate.simulation.world import TaskBody, Worker, World
from headgate.task.messages import (
    BodyReport,
    StopTask,
    TaskClosing,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskSpec,
)
from headgate.task.run import graceful_ms


class _Run:
    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.body: TaskBody | None = None
        self.ended = False
        self.released = False
        self.last_ms = 0
        """When the last message of either direction arrives: a lifeline keeps its order."""


class SimulatedRunner:
    def __init__(self, world: World, worker: Worker, silence_ms: int) -> None:
        self._world = world
        self._schedule = world.schedule
        self._worker = worker
        self._silence_ms = silence_ms
        self._runs: dict[str, _Run] = {}
        self._worker_episode = 0

    def bodies(self) -> list[TaskBody]:
        return [r.body for r in self._runs.values() if r.body is not None and not r.body.dead]

    def unreleased(self) -> list[TaskSpec]:
        return [r.spec for r in self._runs.values() if not r.released]

    # -- effects of the worker --

    def start(self, spec: TaskSpec) -> None:
        run = self._runs[spec.run] = _Run(spec)
        body = run.body = self._world.body(spec, lambda report: self._up(run, report))
        self._in_order(run, lambda: None if body.dead else body.begin(), 200)

    def send(self, name: str, command: TaskCommand) -> None:
        run = self._runs.get(name)
        if run is not None and run.body is not None:
            body = run.body
            self._in_order(run, lambda: body.command(command), 20)

    def stop(self, name: str, grace_ms: int) -> None:
        run = self._runs.get(name)
        if run is None or run.released:
            return
        if grace_ms > 0:
            self.send(name, StopTask())
        self._kill_after(run, grace_ms)

    def _kill_after(self, run: _Run, grace_ms: int) -> None:
        self._schedule.after(grace_ms, lambda: self._worker.when_awake(lambda: self._kill(run)))

    # -- what becomes of bodies --

    def _in_order(self, run: _Run, action: Callable[[], None], most_ms: int) -> None:
        now = self._schedule.now_ms
        run.last_ms = max(run.last_ms, now + self._schedule.chance.randint(0, most_ms))
        self._schedule.after(run.last_ms - now, action)

    def _up(self, run: _Run, report: BodyReport) -> None:
        if isinstance(report, TaskClosing):
            self._kill_after(run, graceful_ms(run.spec))
            return

        def arrive() -> None:
            if run.released or self._worker.dead or run.ended:
                return
            if isinstance(report, TaskEnded):
                run.ended = True
            self._worker.reported(TaskReported(run.spec.run, report))
            if isinstance(report, TaskEnded):
                self._in_order(run, lambda: self._over(run), 50)

        self._in_order(run, arrive, 20)

    def _over(self, run: _Run) -> None:
        """The body's process has ended by itself."""
        if run.body is not None:
            run.body.die()
        self._release(run)

    def _kill(self, run: _Run, why: str = "killed at the deadline") -> None:
        if run.released or run.body is None:
            return
        run.body.die()
        self._lost(run, why)

    def _lost(self, run: _Run, why: str) -> None:
        if not run.ended:
            run.ended = True
            self._worker.reported(TaskReported(run.spec.run, TaskEnded(TaskOutcome.LOST, why)))
        self._in_order(run, lambda: self._release(run), 20)

    def _release(self, run: _Run) -> None:
        if not run.released and not self._worker.dead:
            run.released = True
            self._worker.reported(TaskReported(run.spec.run, TaskReleased()))

    # -- faults --

    def kill_body(self, body: TaskBody) -> None:
        """SIGKILL from outside: the worker sees the lifeline close."""
        run = self._runs[body.spec.run]
        body.die()
        self._schedule.soon(lambda: self._worker.when_awake(lambda: self._lost(run, "gone")))

    def freeze_body(self, body: TaskBody, for_ms: int) -> None:
        run = self._runs[body.spec.run]
        body.freeze()
        self._schedule.after(for_ms, lambda: body.thaw(for_ms, self._silence_ms))
        if for_ms >= self._silence_ms:
            self._schedule.after(
                self._silence_ms,
                lambda: self._worker.when_awake(lambda: self._kill_if_frozen(run)),
            )

    def _kill_if_frozen(self, run: _Run) -> None:
        if run.body is not None and run.body.frozen:
            self._kill(run, "silent for too long")

    def worker_gone(self) -> None:
        """The worker is dead: the lifelines close, and a body that is not frozen ends at once."""
        for body in self.bodies():
            self._schedule.soon(body.die if not body.frozen else lambda: None, 100)
            if body.frozen:
                body.orphan()

    def worker_silent(self) -> None:
        """The worker is frozen: its bodies notice by the silence."""
        self._worker_episode += 1
        episode = self._worker_episode
        for body in self.bodies():
            self._schedule.after(
                self._silence_ms + self._schedule.chance.randint(0, 50),
                partial(self._silence, body, episode),
            )

    def worker_awake(self) -> None:
        self._worker_episode += 1

    def _silence(self, body: TaskBody, episode: int) -> None:
        if episode == self._worker_episode and not body.dead:
            body.silence("the worker has been silent for too long")
