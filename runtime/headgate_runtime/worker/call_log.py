"""Log lines about the calls that a worker receives: what is asked, from where, and the outcome."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from headgate.connector.secret_keys import without_secrets
from headgate.herder import messages as m
from headgate.herder.reads import Read
from headgate.ports import IncomingCall, Peers
from headgate_runtime.worker.log_format import subject

log = logging.getLogger(__name__)

_READS: Final = (
    *get_args(Read),
    m.ReadOffsets,
    m.ReadDeletedOffsets,
    m.DescribeWorker,
    m.DescribeGroup,
    m.ForeseeMoves,
)
"""Kinds of calls that change nothing."""
OPEN_MAX: Final = 1_000
"""Most calls whose answers are awaited. The answers to further calls are not logged."""


class LoggedPeers:
    """`Peers` that log calls and their answers. For the worker's thread."""

    def __init__(self, inner: Peers) -> None:
        self._inner = inner
        self._open: dict[str, _Asked] = {}
        """Calls without an answer yet, by id."""

    def call(
        self, url: str, call: m.Call, hops: int, timeout_ms: int, origin: str = ""
    ) -> m.Result:
        return self._inner.call(url, call, hops, timeout_ms, origin)

    def incoming(self) -> Sequence[IncomingCall]:
        calls = self._inner.incoming()
        for incoming in calls:
            self._asked(incoming)
        return calls

    def answer(self, call_id: str, result: m.Result) -> None:
        self._inner.answer(call_id, result)
        found = self._open.pop(call_id, None)
        if found is not None:
            self._answered(found, result)

    def _asked(self, incoming: IncomingCall) -> None:
        call = incoming.call
        if isinstance(call, _READS):
            log.debug("asked: %s", type(call).__name__)
            return
        connector, words = about(call)
        log.info(
            "asked %s: %s",
            _origin(incoming),
            words,
            extra=subject(connector) if connector else None,
        )
        if len(self._open) < OPEN_MAX:
            self._open[incoming.call_id] = _Asked(connector, words, _config_of(call))

    def _answered(self, asked: "_Asked", result: m.Result) -> None:
        extra = subject(asked.connector) if asked.connector else None
        took_ms = (time.monotonic() - asked.at) * 1000
        if isinstance(result, m.Success):
            log.info("done in %.0f ms: %s", took_ms, asked.words, extra=extra)
        else:
            reason = without_secrets(result.message, asked.config)
            text = "refused after %.0f ms: %s: %s (%s)"
            log.info(text, took_ms, asked.words, reason, result.kind, extra=extra)


@dataclass(frozen=True, slots=True)
class _Asked:
    connector: str
    words: str
    config: Mapping[str, str | None]
    """Config that came with the call: a refusal may repeat its values."""
    at: float = field(default_factory=time.monotonic)


def _origin(incoming: IncomingCall) -> str:
    if not incoming.hops:
        return incoming.origin or "from outside"
    return "by another worker" + (f", {incoming.origin}" if incoming.origin else "")


def _config_of(call: m.Call) -> Mapping[str, str | None]:
    match call:
        case m.CreateConnector() | m.PutConnectorConfig():
            return call.config
        case m.PatchConnectorConfig():
            return call.changes
        case m.PutTaskConfigs():
            tasks = enumerate(call.configs)
            return {f"{n}.{key}": value for n, one in tasks for key, value in one.items()}
    return {}


def about(call: m.Call) -> tuple[str, str]:
    """Return the connector that a call is about, and the call in words. Values of configs are left
    out, because they include passwords."""
    match call:
        case m.SetTargetState(name, state):
            return name, f"connector {name} is to be {state}"
        case m.CreateConnector(name, _, state):
            return name, f"create connector {name}" + (f", {state}" if state else "")
        case m.PutConnectorConfig(name):
            return name, f"config of connector {name}"
        case m.PatchConnectorConfig(name, changes):
            return name, f"change {', '.join(sorted(changes))} of connector {name}"
        case m.DeleteConnector(name):
            return name, f"delete connector {name}"
        case m.RestartConnector(name, with_tasks, only_failed):
            what = " and its tasks" if with_tasks else ""
            return name, f"restart connector {name}{what}" + (
                ", what has failed" if only_failed else ""
            )
        case m.RestartTask(task):
            return task.connector, f"restart task {task}"
        case m.PutTaskConfigs(connector, configs):
            return connector, f"configs of {len(configs)} tasks of connector {connector}"
        case m.SetLoggerLevel(logger, level):
            return "", f"level {level} for logger {logger}"
        case m.FenceConnector(name):
            return name, f"fence the producers of connector {name}"
        case m.AlterOffsets(name):
            return name, f"change offsets of connector {name}{_dry(call)}"
        case m.ResetOffsets(name):
            return name, f"reset the offsets of connector {name}{_dry(call)}"
        case m.ResetDeletedOffsets(name):
            return name, f"reset the offsets of deleted connector {name}{_dry(call)}"
        case m.ResetTopics(name):
            return name, f"forget the topics that connector {name} has used"
    name = getattr(call, "name", None) or getattr(call, "connector", None) or ""
    return str(name), f"{type(call).__name__} {name}".rstrip()


def _dry(call: m.AlterOffsets | m.ResetOffsets | m.ResetDeletedOffsets) -> str:
    return ", as a dry run" if call.dry_run else ""
