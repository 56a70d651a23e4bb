"""Answers of a standalone worker to who makes a connector or changes its config: once it has
started and its tasks are in the log, which the body then lists.

Source: StandaloneHerder.putConnectorConfig. Distributed workers answer, as in Connect, when the
config is in the log. Differs: the message of a failed start has its reason; where `task_configs`
raises that is said at once (Java says nothing, and the request times out); an equal config starts
nothing, so it is answered as it is.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from headgate import wire
from headgate.events import Config
from headgate.herder.herder import Herder
from headgate.herder.messages import (
    Call,
    CreateConnector,
    ErrorKind,
    Failure,
    PatchConnectorConfig,
    PutConnectorConfig,
    Result,
    Success,
)
from headgate.ports import IncomingCall, Peers
from headgate_runtime.with_peers import WithPeers


@dataclass(slots=True)
class _Asked:
    connector: str
    before: Config | None
    """Config in force when it was asked."""
    deadline: float
    info: dict[str, Any] | None = None
    """The answer's body, without the tasks that are to come; None: the herder is still at it."""


class StandalonePeers:
    """The `Peers` of a worker without a group: answers that must wait are kept here. For the
    worker's thread, but for `call`."""

    def __init__(self, inner: Peers) -> None:
        self._inner = inner
        self._herder: Herder | None = None
        self._asked: dict[str, _Asked] = {}

    def serve(self, herder: Herder) -> None:
        """Before anything is asked."""
        self._herder = herder

    def call(self, url: str, payload: bytes, hops: int, timeout_ms: int) -> bytes:
        return self._inner.call(url, payload, hops, timeout_ms)

    @property
    def waiting(self) -> bool:
        """Answers are kept back: `incoming` is to be called again soon."""
        return any(asked.info is not None for asked in self._asked.values())

    def incoming(self) -> Sequence[IncomingCall]:
        self._look()
        calls = self._inner.incoming()
        for incoming in calls:
            self._note(incoming)
        return calls

    def answer(self, call_id: str, payload: bytes) -> None:
        asked = self._asked.get(call_id)
        if asked is None:
            self._inner.answer(call_id, payload)
            return
        result: Result = wire.loads(Success | Failure, payload)
        if isinstance(result, Success):
            info = dict(cast(dict[str, Any], result.value))
            if info["config"] != asked.before:
                asked.info = info
                return
        del self._asked[call_id]
        self._inner.answer(call_id, payload)

    def _note(self, incoming: IncomingCall) -> None:
        try:
            call = wire.loads(Call, incoming.payload)
        except wire.WireError:
            return  # who takes it says so
        if isinstance(call, CreateConnector | PutConnectorConfig | PatchConnectorConfig):
            assert self._herder is not None
            entry = self._herder.state.entry(call.name)
            before = None if entry is None or entry.config is None else dict(entry.config)
            deadline = time.monotonic() + incoming.deadline_ms_left / 1000
            self._asked[incoming.call_id] = _Asked(call.name, before, deadline)

    def _look(self) -> None:
        for call_id, asked in list(self._asked.items()):
            if asked.info is not None:
                result = self._result(asked, asked.info)
                if result is not None:
                    del self._asked[call_id]
                    self._inner.answer(call_id, wire.dumps(result))

    def _result(self, asked: _Asked, info: dict[str, Any]) -> Result | None:
        assert self._herder is not None
        name = asked.connector
        outcome = self._herder.outcome(name)
        if isinstance(outcome, Success):
            tasks = self._herder.state.tasks(name)
            shown = [{"connector": task.connector, "task": task.task} for task in tasks]
            return Success({**info, "tasks": shown})
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
