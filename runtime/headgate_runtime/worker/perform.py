"""What performs the effects of a worker's `HerderHost`, and on which threads.

It decides nothing. Work on the logs is done by `headgate_runtime.worker.logs`. Work that may wait
for connectors, plugins or other workers is handed to a thread, which posts its outcome.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headgate.connector.api import OffsetReader
from headgate.connector.config_providers import ConfigProviderError
from headgate.herder import messages as m
from headgate.host.ports import ConfigRecords
from headgate.host.work import Work
from headgate.membership.messages import GroupRequest
from headgate.ports import Reporter, Runner, TransportError
from headgate.task.messages import TaskCommand, TaskSpec
from headgate.topics.config_events import Config
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import WorkerConfigTransformer
from headgate_runtime.plugins.threads import HangError, PluginThreads
from headgate_runtime.plugins.validation import config_error
from headgate_runtime.spark.launcher import HOST, spark_launcher
from headgate_runtime.tasks import long_calls
from headgate_runtime.tasks.resolving_runner import ResolvingRunner
from headgate_runtime.tasks.select import make_runner
from headgate_runtime.tasks.server import LOOPBACK
from headgate_runtime.transports.select import ADAPTERS, Transport, open_task_transport
from headgate_runtime.worker.config import WorkerConfig, transport_settings
from headgate_runtime.worker.connector_calls import ConnectorCalls
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
"""Prefixes of worker or connector settings that give a connector an admin client other than the
worker's own."""


class Performer:
    """A `HostPorts` and a `HostSchedule` over the transport, the runner, the connector instances
    and a few threads."""

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
        still_ours: Callable[[m.AlterConnectorOffsets], bool],
        transformer: WorkerConfigTransformer,
        offsets_look: OffsetsLook | None,
    ) -> None:
        """
        Args:
            config_of: returns the newest config of a connector that was read, empty if it has none.
            still_ours: as in `ConnectorOffsets`.
            transformer: resolves references in configs. It is closed with the performer.
            offsets_look: asked to look whenever source offsets were read or altered. It is closed
                with the performer.
        """
        self._transport = transport
        self._logs = logs
        self._post = post
        self._settings = settings
        self._transformer = transformer
        self._offsets_look = offsets_look
        # Threads of its own: a validation is users' code, which may hang for ever. Nothing else may
        # wait for it.
        self._validations = PluginThreads("validation")
        self._fencings = DaemonThreads(FENCING_THREADS, "fencing")
        self._calls = DaemonThreads(CALL_THREADS, "calls")
        # Threads of their own: these calls wait for open transactions. Fencing, which ends open
        # transactions, must not wait for them.
        self._offset_threads = DaemonThreads(OFFSET_THREADS, "offsets")
        self._transport_settings = transport_settings(config, settings)
        self._config_of = config_of
        self._offsets = ConnectorOffsets(
            self._transport_settings, settings, still_ours, transformer
        )
        self.connector_calls = ConnectorCalls()
        self._connectors = ConnectorHost(
            post,
            self._offset_reader,
            transformer,
            settings["headgate.rest.task.configs.max.bytes"],
            self.connector_calls,
        )
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

    # -- the schedule --

    def run(self, work: Work) -> Sequence[m.Command]:
        """Perform work that may wait for others on a thread, and all other work at once."""
        effect = work.effects[0]
        on_thread = partial(self._on_thread, work)
        match effect:
            case m.AppendConfig() | m.ClaimLeadership() | m.ReadConfigToEnd():
                return self._logs.run(work)
            case m.ValidateConfig():
                plugin = effect.config.get("connector.class") or ""
                try:
                    self._validations.submit(plugin, on_thread)
                except HangError as error:
                    return work.failed(str(error))
            case m.FenceProducers():
                self._fencings.submit(on_thread)
            case m.CallPeer():
                self._calls.submit(on_thread)
            case m.ReadConnectorOffsets():
                self._offset_threads.submit(on_thread)
            case m.AlterConnectorOffsets(token):
                self._offsets.expect(token)
                self._offset_threads.submit(on_thread)
            case _:
                return work.perform()
        return ()

    def _on_thread(self, work: Work) -> None:
        effect = work.effects[0]
        try:
            commands = work.perform()
        except BaseException as error:  # connector code may raise anything, SystemExit too
            # The error is a bug of ours or of a plugin. Without an answer, the caller would wait
            # for ever.
            log.exception("%s", type(effect).__name__)
            commands = work.failed(f"{type(error).__name__}: {error}")
        for command in commands:
            self._post(command)
        if isinstance(effect, (m.ReadConnectorOffsets, m.AlterConnectorOffsets)):
            self.look_at_offsets()

    def look_at_offsets(self) -> None:
        """Have the offsets topic checked soon for records that cannot be used."""
        if self._offsets_look is not None:
            self._offsets_look.soon()

    # -- the ports: the logs and the group --

    def claim(self, generation: int) -> None:
        self._logs.claim(generation)

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        return self._logs.append(records, privileged=privileged)

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        return self._logs.read_to_end(token, statuses=statuses)

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        for status in statuses:
            log_status(status.key, status.value)
        self._logs.write_statuses(statuses)

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        return self._logs.await_statuses(token)

    def send_group(self, request: GroupRequest) -> None:
        self._guarded("group request", lambda: self._transport.group.send(request))

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        """Perform an action that has no answer. If it fails, that is logged only: the herder asks
        again when no answer comes."""
        try:
            action()
        except TransportError as error:
            log.warning("%s not sent: %s", what, error)

    # -- calls --

    def answer(self, call_id: str, result: m.Result) -> None:
        self._guarded("answer", lambda: self._transport.peers.answer(call_id, result))

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> m.Result:
        return self._transport.peers.call(url, call, hops, ms)

    # -- connectors and tasks --

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        with self.connector_calls.watched(name), long_calls.call("validate"):
            error = config_error(name, config, self._settings, self._transformer)
        return () if error is None else (error,)

    def start_connector(self, effect: m.StartConnector) -> None:
        self._connectors.start(effect)

    def generate_task_configs(self, effect: m.GenerateTaskConfigs) -> None:
        self._connectors.generate(effect)

    def stop_connector(self, effect: m.StopConnector) -> None:
        self._connectors.stop(effect)

    def start_task(self, spec: TaskSpec) -> None:
        log.info("task %s starts as run %s", spec.task, spec.run, extra=subject(spec.task))
        self._runner.start(spec)

    def send_task(self, run: str, command: TaskCommand) -> None:
        self._runner.send(run, command)

    def stop_task(self, run: str, grace_ms: int) -> None:
        self._runner.stop(run, grace_ms)

    # -- offsets --

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead:
        with self.connector_calls.watched(effect.connector):
            return self._offsets.read(effect)

    def alter_offsets(self, effect: m.AlterConnectorOffsets) -> m.ConnectorOffsetsAltered:
        with self.connector_calls.watched(effect.connector):
            return self._offsets.alter(effect)

    def give_up_alteration(self, token: int) -> m.Failure | None:
        if not self._offsets.give_up(token):
            return None
        log.warning("the change of offsets %d is given up: its time is over", token)
        return m.Failure(m.ErrorKind.TIMEOUT, "given up: its time is over")

    # -- others --

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        return secrets.token_bytes(key_size // 8), time.time_ns() // 1_000_000

    def set_logger_level(self, logger: str, level: str) -> None:
        self._loggers.set_level(logger, level)

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        log.info("fencing %d producers of %s", len(transactional_ids), connector)
        try:
            self._fence(connector, transactional_ids)
        except (TransportError, ConfigProviderError) as error:
            log.warning("tasks of %s wait for their fence: %s", connector, error)
            raise

    def _fence(self, connector: str, ids: Sequence[str]) -> None:
        """Fence with the connector's own admin client if it has one: its producers may be on other
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
        host=config.spark.get(HOST, LOOPBACK),
        preload=(ADAPTERS[config.transport["kind"]], "headgate_connectors.file_stream"),
    )
