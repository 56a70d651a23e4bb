"""Runs a study: from the start of its workers until all is balanced after its last event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    ErrorKind,
    Failure,
    PutConnectorConfig,
    RestartConnector,
    RestartTask,
    Result,
    SetTargetState,
)
from headgate.ids import TargetState, TaskId
from headgate.simulation.study.facts import Fact
from headgate.simulation.study.model import Event, Study, Verb
from headgate.simulation.study.world import StudyWorld

CALL_TIMEOUT_MS: Final = 90_000
AGAIN_MS: Final = 500
"""After how long the user asks again if a call is refused."""
LOOK_MS: Final = 500
"""Between two looks at whether the run is over."""
QUIET_MS: Final = 5_000
"""How long all must have been at rest before the run is over."""
LATE_MS: Final = 120_000
OTHERS_MS: Final = 10
"""After how many of the longest message delays of the first worker the others start: it is then in
the group, and leads it."""

_TARGETS: Final = {
    Verb.PAUSE: TargetState.PAUSED,
    Verb.RESUME: TargetState.STARTED,
    Verb.STOP: TargetState.STOPPED,
}
_MAY_PASS: Final = (
    ErrorKind.CONFLICT,
    ErrorKind.INTERNAL,
    ErrorKind.TIMEOUT,
    ErrorKind.NOT_READY,
    ErrorKind.UNREACHABLE,
)
"""For these a call is made again."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study."""

    study: Study
    seed: int
    facts: Sequence[Fact]
    ended_ms: int
    settled: bool
    """Whether all was balanced and at rest at the end; else the run ended by `duration`, or because
    it took too long."""
    steps: int
    """Steps of the simulation: messages, timers and pieces of work."""


def run_study(study: Study, seed: int = 1, *, trace: bool = False) -> Run:
    """One run of `study` in virtual time.

    Args:
        seed: each delay of a message, and each time that is a range, is drawn from it. The same
            study and seed give the same run.
        trace: keep each message of the group protocol as `Sent`.

    Raises:
        InvariantBroken: the herder broke one of the rules of docs/know/architecture.md: a fault of
            Headgate's.
    """
    return _Runner(study, seed, trace=trace).run()


class _Runner:
    def __init__(self, study: Study, seed: int, *, trace: bool) -> None:
        self._study = study
        self._world = StudyWorld(study, seed, trace=trace)
        self._schedule = self._world.schedule
        self._busy = 0
        """Calls and workers that are still to come to an end."""
        self._tasks = dict(study.connectors)
        """`tasks.max` by connector, as last asked for."""

    def run(self) -> Run:
        study, schedule = self._study, self._schedule
        self._world.record.happened(-1, _start_text(study.workers))
        self._world.start_worker(study.workers[0])
        others_ms = OTHERS_MS * max(study.settings_of(study.workers[0]).message_ms)
        for name in study.workers[1:]:
            self._later(others_ms, partial(self._world.start_worker, name))
        for name in study.at_start():
            self._create(name)
        for number, event in enumerate(study.events):
            self._busy += 1
            late_ms = schedule.chance.randint(0, event.within_ms) if event.within_ms else 0
            schedule.after(event.at_ms + late_ms, partial(self._happen, number, event))
        ended_ms, settled = self._until_over()
        facts = [fact for fact in self._world.record.facts if fact.at_ms <= ended_ms]
        return Run(study, self._world.seed, facts, ended_ms, settled, schedule.steps)

    def _until_over(self) -> tuple[int, bool]:
        """When the run ended, and whether all was at rest."""
        schedule, duration_ms = self._schedule, self._study.duration_ms
        late_ms: int | None = None
        quiet_ms: int | None = None
        looked_ms = -LOOK_MS
        while schedule.step():
            now_ms = schedule.now_ms
            if duration_ms is not None:
                if now_ms > duration_ms:
                    return duration_ms, self._at_rest()
                continue
            if self._busy or now_ms - looked_ms < LOOK_MS:
                continue
            looked_ms = now_ms
            late_ms = now_ms + self._patience_ms() if late_ms is None else late_ms
            if not self._at_rest():
                quiet_ms = None
                if now_ms > late_ms:
                    return now_ms, False
                continue
            quiet_ms = now_ms if quiet_ms is None else quiet_ms
            if now_ms - quiet_ms >= QUIET_MS:
                return now_ms, True
        return schedule.now_ms, self._at_rest()

    def _patience_ms(self) -> int:
        """How long after the last event the run may go on without coming to rest."""
        settings = [self._study.settings_of(worker.name) for worker in self._world.workers.values()]
        return LATE_MS + max(
            each.rebalance_delay_ms + each.session_timeout_ms + 2 * each.rebalance_timeout_ms
            for each in settings
        )

    def _at_rest(self) -> bool:
        alive = self._world.alive()
        if not alive:
            return False
        return not self._busy and all(
            not worker.frozen and worker.herder.view().settled for worker in alive
        )

    # -- events --

    def _happen(self, number: int, event: Event) -> None:
        self._busy -= 1
        self._world.record.happened(number, event.text)
        match event.verb:
            case Verb.ROLL:
                self._roll(event)
            case Verb.START:
                self._start(event.name)
            case Verb.CRASH | Verb.FREEZE:
                self._strike(event)
            case Verb.STOP if event.on_worker:
                self._stop(event.name, event.for_ms)
            case Verb.CREATE:
                self._create(event.name)
            case Verb.SCALE:
                self._tasks[event.name] = event.tasks
                self._create(event.name)
            case Verb.DELETE:
                self._ask(DeleteConnector(event.name))
            case Verb.RESTART if event.name not in self._study.connectors:
                self._ask(RestartTask(TaskId.parse(event.name)))
            case Verb.RESTART:
                self._ask(RestartConnector(event.name, include_tasks=True))
            case _:
                self._ask(SetTargetState(event.name, _TARGETS[event.verb]))

    def _strike(self, event: Event) -> None:
        worker = self._world.workers[event.name]
        if worker.dead or (worker.frozen and event.verb is Verb.FREEZE):
            why = f"{worker.name} is {'down' if worker.dead else 'frozen'}"
            self._world.record.refused(event.text, why, again=False)
            return
        if event.verb is Verb.FREEZE:
            self._later(event.for_ms or 0, lambda: None)
            worker.freeze_for(event.for_ms or 0)
            return
        if event.for_ms is not None:
            self._later(event.for_ms, partial(self._start, event.name))
        worker.crash()

    def _start(self, name: str) -> None:
        """At once, or when the worker that is still stopping has gone."""
        worker = self._world.workers.get(name)
        if worker is None or worker.dead:
            self._world.start_worker(name)
        elif worker.stopping:
            self._when_gone(name, 0)
        else:
            self._world.record.refused(f"start {name}", f"{name} is up", again=False)

    def _stop(self, name: str, for_ms: int | None) -> None:
        """`for_ms`: after how long from its end it is started again; None: never."""
        worker = self._world.workers[name]
        if worker.dead or worker.stopping:
            why = f"{name} is down"
            self._world.record.refused(f"stop {name}", why, again=False)
            return
        if for_ms is not None:
            self._when_gone(name, for_ms)
        self._busy += 1
        worker.on_gone.append(self._idle)
        worker.stop()

    def _idle(self) -> None:
        self._busy -= 1

    def _when_gone(self, name: str, delay_ms: int) -> None:
        start = partial(self._start, name)
        self._world.workers[name].on_gone.append(partial(self._later, delay_ms, start))

    def _roll(self, event: Event) -> None:
        for number, worker in enumerate(self._world.alive()):
            stop = partial(self._stop, worker.name, event.for_ms)
            self._later(number * event.every_ms, stop)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._busy += 1

        def act() -> None:
            self._busy -= 1
            action()

        self._schedule.after(delay_ms, act)

    # -- calls --

    def _create(self, name: str) -> None:
        config = {
            "name": name,
            "connector.class": "Simulated",
            "tasks.max": str(self._tasks[name]),
        }
        self._ask(PutConnectorConfig(name, config))

    def _ask(self, call: Call) -> None:
        """Ask the first worker that is there, and ask again until it is done."""
        self._busy += 1
        self._ask_once(call)

    def _ask_once(self, call: Call) -> None:
        again = partial(self._schedule.after, AGAIN_MS, partial(self._ask_once, call))
        there = [one for one in self._world.alive() if not (one.frozen or one.stopping)]
        if not there:
            again()
            return

        def deliver(result: Result) -> None:
            if isinstance(result, Failure) and not _done_before(call, result):
                may_pass = result.kind in _MAY_PASS
                what = type(call).__name__
                self._world.record.refused(what, result.message, again=may_pass)
                if may_pass:
                    again()
                    return
            self._busy -= 1

        self._world.network.send(there[0].url, call, 0, CALL_TIMEOUT_MS, deliver)


def _start_text(workers: Sequence[str]) -> str:
    few = ", ".join(workers)
    return f"start {few if len(workers) <= 3 else f'{workers[0]} to {workers[-1]}'}"


def _done_before(call: Call, result: Failure) -> bool:
    """Whether it is refused because an earlier try has done it."""
    return isinstance(call, DeleteConnector) and result.kind is ErrorKind.NOT_FOUND
