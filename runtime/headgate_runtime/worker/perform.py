"""Performs a herder's effects. Decides nothing: every outcome goes back as a command.

Effects on the logs are performed in order (`headgate_runtime.worker.logs`). Whatever may wait for
somebody else (connectors, plugins, other workers) is handed to a thread, and its outcome is posted.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, assert_never

from headgate import wire
from headgate.connector.api import OffsetReader
from headgate.connector.config_providers import ConfigProviderError
from headgate.herder import messages as m
from headgate.ports import Reporter, Runner, TransportError
from headgate.topics.config_events import Config
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import WorkerConfigTransformer
from headgate_runtime.plugins.threads import HangError, PluginThreads
from headgate_runtime.plugins.validation import config_error
from headgate_runtime.spark.launcher import spark_launcher
from headgate_runtime.tasks.resolving_runner import ResolvingRunner
from headgate_runtime.tasks.select import make_runner
from headgate_runtime.transports.select import ADAPTERS, Transport, open_task_transport
from headgate_runtime.worker.config import WorkerConfig, transport_settings
from headgate_runtime.worker.connector_host import ConnectorHost
from headgate_runtime.worker.connector_offsets import ConnectorOffsets
from headgate_runtime.worker.daemon_threads import DaemonThreads
from headgate_runtime.worker.log_format import subject
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.logs import Logs
from headgate_runtime.worker.offsets_look import OffsetsLook
from headgate_runtime.worker.status_log import log_status

log = logging.getLogger(__name__)

FENCING_THREADS = 8
CALL_THREADS = 8
OFFSET_THREADS = 4
OVERRIDES = ("admin.", "producer.override.bootstrap.", "producer.bootstrap.")
"""Keys of a worker or a connector that make its admin client another than the worker's own."""

ThreadEffect: TypeAlias = (
    m.ValidateConfig
    | m.FenceProducers
    | m.CallPeer
    | m.ReadConnectorOffsets
    | m.AlterConnectorOffsets
)


class Performer:
    """Holds what performing needs: transport, runner, connector instances, a few threads."""

    def __init__(
        self,
        transport: Transport,
        logs: Logs,
        post: Callable[[m.Command], None],
        report: Reporter,
        config: WorkerConfig,
        settings: WorkerSettings,
        alive: Callable[[], bool],
        loggers: Loggers,
        config_of: Callable[[str], Config],
        still_ours: Callable[[str, int | None], bool],
        transformer: WorkerConfigTransformer,
        offsets_look: OffsetsLook | None,
    ) -> None:
        """
        Args:
            offsets_look: asked whenever source offsets were read or altered; closed with this.
            config_of: of a connector, the newest that was read; empty for one that is not there.
            still_ours: as `ConnectorOffsets` asks.
            transformer: closed with this.
        """
        self._transport = transport
        self._logs = logs
        self._post = post
        self._settings = settings
        self._transformer = transformer
        self._offsets_look = offsets_look
        # Apart: a validation is users' code, which may hang for ever. Nothing else may wait for it.
        self._validations = PluginThreads("validation")
        self._fencings = DaemonThreads(FENCING_THREADS, "fencing")
        self._calls = DaemonThreads(CALL_THREADS, "calls")
        # Apart: they wait for open transactions, and fencing, which ends those, must not wait for
        # them.
        self._offset_threads = DaemonThreads(OFFSET_THREADS, "offsets")
        self._transport_settings = transport_settings(config, settings)
        self._config_of = config_of
        self._offsets = ConnectorOffsets(
            self._transport_settings, settings, still_ours, transformer
        )
        self._connectors = ConnectorHost(post, self._offset_reader, transformer)
        self._loggers = loggers
        runner = _runner(config, settings, report, alive)
        self._runner = ResolvingRunner(runner, report, transformer)

    def _offset_reader(self, connector: str, config: Mapping[str, str]) -> OffsetReader:
        return self._offsets.reader(connector, config, self._transport.offset_log)

    def close(self) -> None:
        if self._offsets_look is not None:
            self._offsets_look.close()
        self._runner.close()
        for threads in (self._validations, self._fencings, self._calls, self._offset_threads):
            threads.close()
        self._logs.close()
        self._transformer.close()

    def kill_tasks(self) -> None:
        self._runner.close()

    def perform(self, effects: Sequence[m.Effect]) -> list[m.Command]:
        """Perform all, in the order that `headgate.herder.messages` asks for: as listed, statuses
        last. One that fails stops none of the others.

        Returns:
            The answers that are known at once. The rest is posted.
        """
        known: list[m.Command] = []
        statuses: list[tuple[bytes, bytes | None]] = []
        for effect in effects:
            known.extend(self._perform(effect, statuses))
        self._logs.write_statuses(statuses)
        return known

    def _perform(
        self, effect: m.Effect, statuses: list[tuple[bytes, bytes | None]]
    ) -> Sequence[m.Command]:
        match effect:
            case m.AppendConfig() | m.ClaimLeadership() | m.ReadConfigToEnd():
                return self._logs.perform(effect)
            case m.SendGroup(request):
                self._guarded("group request", lambda: self._transport.group.send(request))
            case m.WriteStatus(key, value):
                log_status(key, value)
                statuses.append((key.encode(), value))
            case m.StartConnector():
                self._connectors.start(effect)
            case m.GenerateTaskConfigs():
                self._connectors.generate(effect)
            case m.StopConnector():
                self._connectors.stop(effect)
            case m.StartTask(spec):
                log.info("task %s starts as run %s", spec.task, spec.run, extra=subject(spec.task))
                self._runner.start(spec)
            case m.SendTask(run, command):
                self._runner.send(run, command)
            case m.StopTaskBy(run, grace_ms):
                self._runner.stop(run, grace_ms)
            case m.ValidateConfig():
                plugin = effect.config.get("connector.class") or ""
                try:
                    self._validations.submit(plugin, partial(self._in_thread, effect))
                except HangError as error:
                    return [m.ConfigValidated(effect.token, (str(error),))]
            case m.FenceProducers():
                self._fencings.submit(partial(self._in_thread, effect))
            case m.CallPeer():
                self._calls.submit(partial(self._in_thread, effect))
            case m.MakeSessionKey(token, _, key_size):
                secret = secrets.token_bytes(key_size // 8)
                return [m.SessionKeyMade(token, secret, time.time_ns() // 1_000_000)]
            case m.ReadConnectorOffsets():
                self._offset_threads.submit(partial(self._in_thread, effect))
            case m.AlterConnectorOffsets(token):
                self._offsets.expect(token)
                self._offset_threads.submit(partial(self._in_thread, effect))
            case m.GiveUpAlteration(token):
                if self._offsets.give_up(token):
                    log.warning("the change of offsets %d is given up: its time is over", token)
                    failure = m.Failure(m.ErrorKind.TIMEOUT, "given up: its time is over")
                    return [m.ConnectorOffsetsAltered(token, failure=failure)]
            case m.ApplyLoggerLevel(logger, level):
                self._loggers.set_level(logger, level)
            case m.Answer(call_id, result):
                self.answer(call_id, result)
            case _:
                assert_never(effect)
        return ()

    def answer(self, call_id: str, result: m.Result) -> None:
        payload = wire.dumps(result)
        self._guarded("answer", lambda: self._transport.peers.answer(call_id, payload))

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        """What has no answer of its own and is asked for again when none comes."""
        try:
            action()
        except TransportError as error:
            log.warning("%s not sent: %s", what, error)

    # -- on a thread --

    def _in_thread(self, effect: ThreadEffect) -> None:
        try:
            command = self._answer_of(effect)
        except BaseException as error:  # connector code may raise anything, SystemExit too
            # A bug, or a plugin's. Untold it would be lost, and who asked would wait for ever.
            log.exception("%s", type(effect).__name__)
            command = _failure_of(effect, f"{type(error).__name__}: {error}")
        self._post(command)
        if isinstance(effect, (m.ReadConnectorOffsets, m.AlterConnectorOffsets)):
            self.look_at_offsets()

    def look_at_offsets(self) -> None:
        """What the offsets topic has that nobody can use is told soon."""
        if self._offsets_look is not None:
            self._offsets_look.soon()

    def _answer_of(self, effect: ThreadEffect) -> m.Command:
        match effect:
            case m.ValidateConfig(token, name, config):
                error = config_error(name, config, self._settings, self._transformer)
                return m.ConfigValidated(token, () if error is None else (error,))
            case m.FenceProducers(token, connector, ids):
                log.info("fencing %d producers of %s", len(ids), connector)
                try:
                    self._fence(connector, ids)
                except (TransportError, ConfigProviderError) as error:
                    log.warning("tasks of %s wait for their fence: %s", connector, error)
                    return m.ProducersFenced(token, str(error))
                return m.ProducersFenced(token)
            case m.CallPeer(token, url, call, hops, timeout_ms):
                try:
                    payload = self._transport.peers.call(url, wire.dumps(call), hops, timeout_ms)
                    return m.PeerAnswered(token, wire.loads(m.Success | m.Failure, payload))
                except (TransportError, wire.WireError) as error:
                    return m.PeerAnswered(token, m.Failure(m.ErrorKind.TIMEOUT, f"{url}: {error}"))
            case m.ReadConnectorOffsets():
                return self._offsets.read(effect)
            case m.AlterConnectorOffsets():
                return self._offsets.alter(effect)
            case _:
                assert_never(effect)

    def _fence(self, connector: str, ids: Sequence[str]) -> None:
        """Fences by an admin client as the connector wants it: its producers may be on other
        brokers."""
        known = self._transformer.resolve(self._config_of(connector), f"connector {connector}")
        config = {key: text for key, text in known.config.items() if text is not None}
        if not any(key.startswith(OVERRIDES) for key in (*config, *self._transport_settings)):
            self._transport.fencer.fence(ids)
            return
        transport = open_task_transport(
            self._transport_settings, config, connector=connector, kind="source", exactly_once=True
        )
        try:
            transport.fencer.fence(ids)
        finally:
            transport.close()


def _failure_of(effect: ThreadEffect, reason: str) -> m.Command:
    match effect:
        case m.ValidateConfig(token):
            return m.ConfigValidated(token, (reason,))
        case m.FenceProducers(token):
            return m.ProducersFenced(token, reason)
        case m.CallPeer(token):
            return m.PeerAnswered(token, m.Failure(m.ErrorKind.INTERNAL, reason))
        case m.ReadConnectorOffsets(token):
            return m.ConnectorOffsetsRead(token, failure=m.Failure(m.ErrorKind.INTERNAL, reason))
        case m.AlterConnectorOffsets(token):
            return m.ConnectorOffsetsAltered(token, failure=m.Failure(m.ErrorKind.INTERNAL, reason))
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
    return make_runner(
        name,
        settings.texts,
        report,
        alive=alive,
        spark_launcher=launcher,
        preload=(ADAPTERS[config.transport["kind"]], "headgate_connectors.file_stream"),
    )
