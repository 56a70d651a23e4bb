"""What goes wrong: workers crash and freeze, bodies are killed and freeze, hosts stand still."""

from collections import Counter
from collections.abc import Callable

from headgate.herder.messages import AppendConfig, Effect
from headgate.simulation.world import TaskBody, Worker, World
from headgate.task.steps import BodyEffect, CommitOffsets

PAUSE_MS = (300, 4_000)
"""Between two faults."""
FROZEN_COMMITTER_MS = 1_300
"""More than a consumer's session, less than a lifeline may be silent."""


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._schedule = world.schedule
        self.counts: Counter[str] = Counter()

    def begin(self, until_ms: int) -> None:
        delay = self._schedule.chance.randint(*PAUSE_MS)
        if self._schedule.now_ms + delay >= until_ms:
            return

        def act() -> None:
            kinds: list[Callable[[], str]] = [
                self._crash,
                self._freeze_worker,
                self._freeze_body,
                self._kill_body,
                self._freeze_host,
                self._strand,
            ]
            self.counts[self._schedule.chance.choice(kinds)()] += 1
            self.begin(until_ms)

        self._schedule.after(delay, act)

    def freezes_writer(self, effect: Effect) -> bool:
        """Whether the leader freezes before it performs `effect`."""
        probability = self._world.options.frozen_writers
        if not (probability and self._world.faulty and isinstance(effect, AppendConfig)):
            return False
        return effect.privileged and self._schedule.likely(probability)

    def freezes_committer(self, body: TaskBody, effect: BodyEffect) -> bool:
        """Whether a sink task freezes before it commits, unnoticed by its worker."""
        probability = self._world.options.frozen_committers
        if not (probability and self._world.faulty and isinstance(effect, CommitOffsets)):
            return False
        if not self._schedule.likely(probability):
            return False
        body.freeze()
        self._schedule.after(
            FROZEN_COMMITTER_MS, lambda: body.thaw(FROZEN_COMMITTER_MS, FROZEN_COMMITTER_MS + 1)
        )
        return True

    def _awake(self) -> list[Worker]:
        workers = self._world.workers
        return [
            workers[n] for n in sorted(workers) if not workers[n].dead and not workers[n].frozen
        ]

    def _duration(self) -> int:
        session = self._world.options.session_timeout_ms
        return self._schedule.chance.choice([session // 6, session // 2, session, session * 2])

    def _crash(self) -> str:
        awake = self._awake()
        if not awake:
            return "nothing"
        worker = self._schedule.chance.choice(awake)
        worker.crash()
        self._schedule.after(
            self._schedule.chance.choice([50, 500, 4_000]),
            lambda: self._world.start_worker(worker.name),
        )
        return "crash of a worker"

    def _freeze_worker(self) -> str:
        awake = self._awake()
        if not awake:
            return "nothing"
        worker = self._schedule.chance.choice(awake)
        worker.freeze()
        self._schedule.after(self._duration(), worker.thaw)
        return "freeze of a worker"

    def _freeze_host(self) -> str:
        """A worker and all its bodies, as when a machine is suspended."""
        awake = self._awake()
        if not awake:
            return "nothing"
        worker = self._schedule.chance.choice(awake)
        duration = self._duration()
        for body in worker.runner.bodies():
            if not body.frozen:
                worker.runner.freeze_body(body, duration + self._schedule.chance.randint(0, 200))
        worker.freeze()
        self._schedule.after(duration, worker.thaw)
        return "freeze of a host"

    def _strand(self) -> str:
        """A worker dies while its bodies, elsewhere, stand still: nobody is left to kill them."""
        awake = self._awake()
        if not awake:
            return "nothing"
        worker = self._schedule.chance.choice(awake)
        session = self._world.options.session_timeout_ms
        for body in worker.runner.bodies():
            if not body.frozen:
                worker.runner.freeze_body(body, session * 2)
        worker.crash()
        self._schedule.after(500, lambda: self._world.start_worker(worker.name))
        return "stranded tasks"

    def _freeze_body(self) -> str:
        bodies = [(w, b) for w in self._awake() for b in w.runner.bodies() if not b.frozen]
        if not bodies:
            return "nothing"
        worker, body = self._schedule.chance.choice(bodies)
        worker.runner.freeze_body(body, self._duration())
        return "freeze of a task"

    def _kill_body(self) -> str:
        bodies = [(w, b) for w in self._awake() for b in w.runner.bodies()]
        if not bodies:
            return "nothing"
        worker, body = self._schedule.chance.choice(bodies)
        worker.runner.kill_body(body)
        return "kill of a task"
