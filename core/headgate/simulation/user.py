"""Somebody who creates, changes and deletes connectors, and notes what was promised."""

from dataclasses import replace
from functools import partial

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    ErrorKind,
    Failure,
    PatchConnectorConfig,
    PutConnectorConfig,
    ResetDeletedOffsets,
    ResetOffsets,
    RestartConnector,
    RestartTask,
    Result,
    SetTargetState,
    Success,
)
from headgate.ids import TargetState, TaskId
from headgate.simulation.restart_checks import SMALL_BUDGET
from headgate.simulation.world import World
from headgate.task.messages import TaskKind

SOURCES = ("a", "b", "c")
"""Each writes to the topic of its name."""
SINKS = {"s": "a"}
"""Topic by the sink that reads it."""
NAMES = (*SOURCES, *SINKS)
CALL_TIMEOUT_MS = 8_000
Conditional = PutConnectorConfig | PatchConnectorConfig | DeleteConnector | SetTargetState


class User:
    def __init__(self, world: World) -> None:
        self._world = world
        self._schedule = world.schedule
        self._chance = world.schedule.chance
        self._variant = 0
        self.open_calls = 0
        self.asked = 0
        self._etags = dict.fromkeys(NAMES, 0)
        """As read some time ago."""
        self.etags_held = 0
        self.etags_refused = 0

    def begin(self, until_ms: int) -> None:
        for name in NAMES:
            self._schedule.soon(partial(self._ask, self._configure(name)), 500)
        self._plan(until_ms)

    def finish(self) -> None:
        """After the faults: everything shall exist and run.

        Not before every older call is past its deadline, for until then it may still act, also when
        its caller has given up.
        """
        self.open_calls += len(NAMES)
        self._schedule.after(CALL_TIMEOUT_MS + 1_000, self._restore)

    def _restore(self) -> None:
        self.open_calls -= len(NAMES)
        state = self._world.checks.read_log()
        for name in NAMES:
            started = SetTargetState(name, TargetState.STARTED)
            if state.entry(name) is None:
                self._until_done(self._configure(name), then=started)
            else:
                self._until_done(started)

    def _plan(self, until_ms: int) -> None:
        delay = self._chance.randint(200, 2_500)
        if self._schedule.now_ms + delay >= until_ms:
            return

        def act() -> None:
            if self._chance.randrange(2 if self._world.options.deleted_offsets else 5) == 0:
                self._change_offsets(self._chance.choice(NAMES))
            else:
                self._ask(self._with_etag(self._choose()))
            self._plan(until_ms)

        self._schedule.after(delay, act)

    def _configure(self, name: str) -> Call:
        self._variant += 1
        config = {
            "name": name,
            "connector.class": "Simulated",
            "tasks.max": str(self._chance.randint(1, 2 if name in SINKS else 4)),
            "variant": str(self._variant),
        }
        if name in SINKS:
            config["topics"] = SINKS[name]
        elif self._world.options.small_budgets:
            config |= SMALL_BUDGET
        return PutConnectorConfig(name, config)

    def _change_offsets(self, name: str) -> None:
        """Changes offsets of a connector that was just stopped, and may be resumed at any
        moment."""
        if self._world.options.deleted_offsets:
            self._reset_left(name)
            return
        self._ask(SetTargetState(name, TargetState.STOPPED))
        for call in (ResetOffsets(name), SetTargetState(name, TargetState.STARTED)):
            self._schedule.soon(partial(self._ask, call), 2_000)

    def _reset_left(self, name: str) -> None:
        """Deletes a connector, resets what it has left, and creates one of its name meanwhile."""
        self._ask(DeleteConnector(name))
        kind = TaskKind.SINK if name in SINKS else TaskKind.SOURCE
        for call in (ResetDeletedOffsets(name, kind), self._configure(name)):
            delay_ms = self._chance.choice((0, 20, 500, 2_000))
            self._schedule.soon(partial(self._ask, call), delay_ms)

    def _choose(self) -> Call:
        name = self._chance.choice(NAMES)
        kind = self._chance.randrange(12)
        if kind < 4:
            return self._configure(name)
        if kind < 7:
            return SetTargetState(name, self._chance.choice(list(TargetState)))
        if kind == 7:
            return RestartConnector(name)
        if kind == 8:
            return RestartTask(TaskId(name, self._chance.randrange(3)))
        if kind == 9:
            flags = self._chance.choice(((True, False), (False, True), (True, True)))
            return RestartConnector(name, *flags)
        if kind == 10:
            self._variant += 1
            return PatchConnectorConfig(name, {"variant": str(self._variant)})
        return DeleteConnector(name)

    def _with_etag(self, call: Call) -> Call:
        likely = self._world.options.etags
        if not likely or not isinstance(call, Conditional):
            return call
        entry = self._world.checks.read_log().entry(call.name)
        if self._chance.random() < 0.7:
            self._etags[call.name] = 0 if entry is None else entry.etag
        asked = self._chance.random() < likely
        return replace(call, etag=self._etags[call.name]) if asked else call

    def _ask(self, call: Call) -> None:
        self._send(call, again=False)

    def _until_done(self, call: Call, then: Call | None = None) -> None:
        self._send(call, again=True, then=then)

    def _send(self, call: Call, *, again: bool, then: Call | None = None) -> None:
        self.open_calls += 1
        self.asked += 1
        self._world.checks.user_asked(call)
        since = len(self._world.checks.events)
        url = self._chance.choice(sorted(self._world.workers))

        def deliver(result: Result) -> None:
            self.open_calls -= 1
            self._check(call, result, since)
            if again and isinstance(result, Failure):
                self._schedule.after(100, lambda: self._until_done(call, then))
            elif then is not None:
                self._until_done(then)
            elif again and self._world.options.small_budgets and isinstance(call, SetTargetState):
                # Nothing else brings back what has used up its budget.
                self._until_done(RestartConnector(call.name, include_tasks=True, only_failed=True))

        target = self._world.workers[url].url
        self._world.network.send(target, call, 0, CALL_TIMEOUT_MS, deliver)

    def _check(self, call: Call, result: Result, since: int) -> None:
        """An acknowledged intent is in the log, where no crash can reach it (invariant 9)."""
        etag = call.etag if isinstance(call, Conditional) else None
        if isinstance(result, Failure):
            self.etags_refused += result.kind is ErrorKind.PRECONDITION
            expected = "no answer in time" in result.message or (
                self._world.options.failing_connectors
                and result.message.startswith("Failed to start connector")
            )
            if result.kind is ErrorKind.INTERNAL and not expected:
                self._world.checks.broken("12 every call is answered", result.message)
            return
        assert isinstance(result, Success)
        if etag is not None:
            assert isinstance(call, Conditional)
            records = 2 if isinstance(call, DeleteConnector) else 1
            begin = (result.config_offset or 0) - records
            self._world.checks.etag_held(call.name, etag, begin, since)
            self.etags_held += 1
        if isinstance(call, SetTargetState):
            self._world.checks.intent_kept(call.name, call.target_state, since)
