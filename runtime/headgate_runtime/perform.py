"""Performs a herder's effects. Decides nothing: every outcome goes back as a command.

Effects on the log are performed on the loop's thread, in order. Whatever may wait for other people
(connectors, plugins, other workers) is handed to a thread, and its outcome is posted.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

import orjson

from headgate import wire
from headgate.events import ConfigEvent, RecordRejected
from headgate.herder.messages import (
    Answer,
    AppendConfig,
    CallPeer,
    ClaimLeadership,
    Command,
    ConfigAppended,
    ConfigAppendFailed,
    ConfigEndRead,
    ConfigRead,
    ConfigValidated,
    Effect,
    ErrorKind,
    Failure,
    FenceProducers,
    GenerateTaskConfigs,
    LeadershipClaimed,
    PeerAnswered,
    ProducersFenced,
    ReadConfigToEnd,
    Result,
    SendGroup,
    SendTask,
    StartConnector,
    StartTask,
    StopConnector,
    StopTaskBy,
    Success,
    ValidateConfig,
    WriteStatus,
)
from headgate.ports import FencedError, Reporter, Runner, TransportError
from headgate.records import decode
from headgate_runtime.connector_host import ConnectorHost
from headgate_runtime.settings import WorkerSettings
from headgate_runtime.spark import spark_launcher
from headgate_runtime.tasks.select import make_runner
from headgate_runtime.transport import Transport
from headgate_runtime.validation import config_error
from headgate_runtime.worker_config import WorkerConfig

log = logging.getLogger(__name__)

BATCH = 5_000
CALL_THREADS = 8


class Performer:
    """Holds what performing needs: transport, runner, connector instances, a few threads."""

    def __init__(
        self,
        transport: Transport,
        post: Callable[[Command], None],
        report: Reporter,
        config: WorkerConfig,
        settings: WorkerSettings,
        alive: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._post = post
        self._settings = settings
        self._connectors = ConnectorHost(post)
        self._threads = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="calls")
        self._config_offset = 0
        self._statuses: list[tuple[bytes, bytes | None]] = []
        self._runner = _runner(config, settings, report, alive)

    def close(self) -> None:
        self._runner.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def perform(self, effects: Sequence[Effect]) -> list[Command]:
        """Perform all in order; returns what is known at once. The rest is posted."""
        known: list[Command] = []
        for effect in effects:
            known.extend(self._perform(effect))
        self._write_statuses()
        return known

    def _write_statuses(self) -> None:
        """All of one decision together. While the log is out of reach they wait, in order."""
        if not self._statuses:
            return
        try:
            self._transport.status_log.append(self._statuses)
        except TransportError as error:
            log.warning("%d statuses wait: %s", len(self._statuses), error)
            return
        self._statuses = []

    def _perform(self, effect: Effect) -> Sequence[Command]:
        match effect:
            case AppendConfig() | ClaimLeadership() | ReadConfigToEnd():
                return self._on_config_log(effect)
            case SendGroup(request):
                self._guarded("group request", lambda: self._transport.group.send(request))
            case WriteStatus(key, value):
                log.info("status %s %s", key, value.decode() if value is not None else "deleted")
                self._statuses.append((key.encode(), value))
            case StartConnector():
                self._connectors.start(effect)
            case GenerateTaskConfigs():
                self._connectors.generate(effect)
            case StopConnector():
                self._connectors.stop(effect)
            case StartTask(spec):
                log.info("task %s starts as run %s", spec.task, spec.run)
                self._runner.start(spec)
            case SendTask(run, command):
                self._runner.send(run, command)
            case StopTaskBy(run, grace_ms):
                self._runner.stop(run, grace_ms)
            case ValidateConfig() | FenceProducers() | CallPeer():
                self._threads.submit(self._in_thread, effect)
            case Answer(call_id, result):
                self.answer(call_id, result)
            case _:
                assert_never(effect)
        return ()

    def answer(self, call_id: str, result: Result) -> None:
        payload = wire.dumps(result)
        self._guarded("answer", lambda: self._transport.peers.answer(call_id, payload))

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        """What has no answer of its own and is asked for again when none comes."""
        try:
            action()
        except TransportError as error:
            log.warning("%s not sent: %s", what, error)

    # -- config log --

    def _on_config_log(
        self, effect: AppendConfig | ClaimLeadership | ReadConfigToEnd
    ) -> Sequence[Command]:
        match effect:
            case AppendConfig(token, records, privileged):
                try:
                    end = self._transport.config_log.append(records, privileged=privileged)
                except (FencedError, TransportError) as error:
                    return [ConfigAppendFailed(token, str(error), isinstance(error, FencedError))]
                return [ConfigAppended(token, end)]
            case ClaimLeadership(generation):
                try:
                    self._transport.config_log.claim(generation)
                except (FencedError, TransportError) as error:
                    return [LeadershipClaimed(generation, str(error))]
                return [LeadershipClaimed(generation)]
            case ReadConfigToEnd(token):
                return self._read_to_end(token)
            case _:
                assert_never(effect)

    def _read_to_end(self, token: int) -> Sequence[Command]:
        known: list[Command] = []
        try:
            end = self._transport.config_log.end()
            while self._config_offset < end:
                events = self.next_config_events()
                if not events and self._config_offset < end:
                    raise TransportError(
                        f"the config log ends at {end}, nothing is read at {self._config_offset}"
                    )
                known.append(ConfigRead(events))
        except TransportError as error:
            return [*known, ConfigEndRead(token, str(error))]
        return [*known, ConfigEndRead(token)]

    def next_config_events(self) -> tuple[ConfigEvent, ...]:
        """Events of the records that nobody was given yet, `BATCH` at the most."""
        records = self._transport.config_log.read(self._config_offset, BATCH)
        if not records:
            return ()
        self._config_offset = records[-1].offset + 1
        events = tuple(decode(r.offset, r.key, r.value, orjson.loads) for r in records)
        for event in events:
            if isinstance(event, RecordRejected):
                log.warning(
                    "config topic, offset %s, key %r: %s", event.offset, event.key, event.reason
                )
        return events

    # -- on a thread --

    def _in_thread(self, effect: ValidateConfig | FenceProducers | CallPeer) -> None:
        try:
            command = self._answer_of(effect)
        except Exception as error:
            # A bug, or a plugin's. In a pool it would be lost, and who asked would wait for ever.
            log.exception("%s", type(effect).__name__)
            command = _failure_of(effect, f"{type(error).__name__}: {error}")
        self._post(command)

    def _answer_of(self, effect: ValidateConfig | FenceProducers | CallPeer) -> Command:
        match effect:
            case ValidateConfig(token, name, config):
                error = config_error(name, config, self._settings)
                return ConfigValidated(token, () if error is None else (error,))
            case FenceProducers(token, connector, ids):
                log.info("fencing %d producers of %s", len(ids), connector)
                try:
                    self._transport.fencer.fence(ids)
                except TransportError as error:
                    return ProducersFenced(token, str(error))
                return ProducersFenced(token)
            case CallPeer(token, url, call, hops, timeout_ms):
                try:
                    payload = self._transport.peers.call(url, wire.dumps(call), hops, timeout_ms)
                    return PeerAnswered(token, wire.loads(Success | Failure, payload))
                except (TransportError, wire.WireError) as error:
                    return PeerAnswered(token, Failure(ErrorKind.TIMEOUT, f"{url}: {error}"))
            case _:
                assert_never(effect)


def _failure_of(effect: ValidateConfig | FenceProducers | CallPeer, reason: str) -> Command:
    match effect:
        case ValidateConfig(token):
            return ConfigValidated(token, (reason,))
        case FenceProducers(token):
            return ProducersFenced(token, reason)
        case CallPeer(token):
            return PeerAnswered(token, Failure(ErrorKind.INTERNAL, reason))
        case _:
            assert_never(effect)


def _runner(
    config: WorkerConfig,
    settings: WorkerSettings,
    report: Reporter,
    alive: Callable[[], bool],
) -> Runner:
    name = settings["headgate.task.runner"]
    launcher = spark_launcher(config.spark) if name == "spark" else None
    return make_runner(name, settings.texts, report, alive=alive, spark_launcher=launcher)
