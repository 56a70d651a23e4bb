"""Answers of a standalone worker that wait for the outcome.

A request that makes a connector or changes its config is answered once the connector has started
and its tasks, which the body lists, are in the log. A restart with flags is answered once
everything that is to be started again has stopped. Source: StandaloneHerder.putConnectorConfig,
restartConnectorAndTasks.

Distributed workers answer, as in Connect, when the config or the restart is in the log.

Differs: the message of a failed start has its reason. An error of `task_configs` is answered at
once; in Java the request times out without one. An equal config starts nothing, so it is answered
as it is.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from headgate.herder.herder import Herder
from headgate.herder.messages import (
    Call,
    CreateConnector,
    ErrorKind,
    Failure,
    PatchConnectorConfig,
    PutConnectorConfig,
    RestartConnector,
    Result,
    Success,
)
from headgate.ports import IncomingCall, Peers
from headgate.topics.config_events import Config
from headgate_runtime.transports.with_peers import WithPeers


@dataclass(slots=True)
class _Waiting:
    connector: str
    before: Config | None
    """Config in force when the request came."""
    deadline: float
    done: Success | None = None
    """The answer, without the tasks that are to come. None: the herder has not answered yet."""


@dataclass(slots=True)
class _Restart:
    connector: str
    deadline: float
    plan: Success | None = None
    """The answer. None: the herder has not answered yet."""


class StandalonePeers:
    """The `Peers` of a worker without a group, which keep back answers that must wait. For the
    worker's thread, except `call`."""

    def __init__(self, inner: Peers) -> None:
        self._inner = inner
        self._herder: Herder | None = None
        self._asked: dict[str, _Waiting] = {}
        self._restarts: dict[str, _Restart] = {}

    def serve(self, herder: Herder) -> None:
        """Take the herder. Called before any request comes."""
        self._herder = herder

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        return self._inner.call(url, call, hops, timeout_ms, origin)

    @property
    def waiting(self) -> bool:
        """Whether answers are kept back, so that `incoming` is to be called again soon."""
        return any(asked.done is not None for asked in self._asked.values()) or any(
            restart.plan is not None for restart in self._restarts.values()
        )

    def incoming(self) -> Sequence[IncomingCall]:
        self._look()
        calls = self._inner.incoming()
        for incoming in calls:
            self._note(incoming)
        return calls

    def answer(self, call_id: str, result: Result) -> None:
        if call_id in self._restarts:
            self._answer_restart(call_id, result)
            return
        asked = self._asked.get(call_id)
        if asked is None:
            self._inner.answer(call_id, result)
            return
        before = asked.before
        if isinstance(result, Success) and cast(Any, result.value)["config"] != before:
            asked.done = result
            return
        del self._asked[call_id]
        self._inner.answer(call_id, result)

    def _answer_restart(self, call_id: str, result: Result) -> None:
        if isinstance(result, Success):
            self._restarts[call_id].plan = result
            return
        del self._restarts[call_id]
        self._inner.answer(call_id, result)

    def _note(self, incoming: IncomingCall) -> None:
        call = incoming.call
        deadline = time.monotonic() + incoming.deadline_ms_left / 1000
        if isinstance(call, RestartConnector) and call.by_record:
            self._restarts[incoming.call_id] = _Restart(call.name, deadline)
        elif isinstance(call, CreateConnector | PutConnectorConfig | PatchConnectorConfig):
            assert self._herder is not None
            entry = self._herder.state.entry(call.name)
            before = None if entry is None or entry.config is None else dict(entry.config)
            self._asked[incoming.call_id] = _Waiting(call.name, before, deadline)

    def _look(self) -> None:
        for call_id, asked in list(self._asked.items()):
            if asked.done is not None:
                result = self._result(asked, asked.done)
                if result is not None:
                    del self._asked[call_id]
                    self._inner.answer(call_id, result)
        for call_id, restart in list(self._restarts.items()):
            if restart.plan is not None:
                done = self._restarted(restart, restart.plan)
                if done is not None:
                    del self._restarts[call_id]
                    self._inner.answer(call_id, done)

    def _restarted(self, restart: _Restart, plan: Success) -> Result | None:
        assert self._herder is not None
        if not self._herder.restarting(restart.connector):
            return plan
        if time.monotonic() < restart.deadline:
            return None
        text = f"Request timed out. The worker is currently stopping {restart.connector}."
        return Failure(ErrorKind.TIMEOUT, text)

    def _result(self, asked: _Waiting, done: Success) -> Result | None:
        assert self._herder is not None
        name = asked.connector
        outcome = self._herder.outcome(name)
        if isinstance(outcome, Success):
            tasks = self._herder.state.tasks(name)
            shown = [{"connector": task.connector, "task": task.task} for task in tasks]
            return replace(done, value={**cast(dict[str, Any], done.value), "tasks": shown})
        if outcome is None and time.monotonic() >= asked.deadline:
            text = f"Request timed out. The worker is currently starting connector {name}."
            return Failure(ErrorKind.TIMEOUT, text)
        return outcome


class WithStandalonePeers(WithPeers):
    """The transport of a standalone worker."""

    def __init__(self, inner: Any, peers: StandalonePeers) -> None:
        super().__init__(inner, peers)
        self._waiting = peers

    def changed(self) -> bool:
        return super().changed() or self._waiting.waiting
