"""``headgate worker FILE.properties``: one distributed worker on Kafka, in this process.

The order is Connect's. REST comes first, and says that it is starting. The brokers and the internal
topics follow, then the logs, read to their ends, and then the group. An error that the user has to
fix ends the command with one line. The exit code is 2 for an error in the file, and 1 for one
outside of it.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from headgate import wire
from headgate.errors import MissingExtraError
from headgate.herder.messages import WorkerView
from headgate.herder.session_keys import KeyRing
from headgate.membership.protocols import RULES
from headgate.ports import Peers, RefusedError, TransportError
from headgate_runtime.command.errors import UpError
from headgate_runtime.command.extras import require
from headgate_runtime.config.properties import PropertiesError
from headgate_runtime.config.rest_limits import CONNECT_NAMES
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.config.worker_file import WorkerFile, WorkerFileError, read_worker_file
from headgate_runtime.plugins.look import SETTING, allow_modules
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.spark.properties import HOST_SETTING, of_remote, spark_settings
from headgate_runtime.spark.service import shown_remote
from headgate_runtime.spark.shared import SharedSpark, default_folder
from headgate_runtime.transports.select import open_transport
from headgate_runtime.transports.with_peers import WithPeers
from headgate_runtime.worker import collector, log_format
from headgate_runtime.worker.call_log import LoggedPeers
from headgate_runtime.worker.config import WorkerConfig, transport_settings
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.loop import Worker
from headgate_runtime.worker.offsets_look import OffsetsLook

if TYPE_CHECKING:
    from grpc import ChannelCredentials

    from headgate_grpc.internal.service import WorkerService
    from headgate_kafka.admin.topics import Reached
    from headgate_kafka.transport import KafkaTransport
    from headgate_rest import RestService
    from headgate_runtime.api.worker_backend import WorkerBackend

log = logging.getLogger(__name__)

INTERNAL_KEY = "headgate.grpc.internal"
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_KILLED = 130
KILL_GRACE_S = 2.0
SPARK_LOOK_S = 0.5
READ_S = 120.0
READ_PAUSE_S = 1.0


class CommandError(Exception):
    """The command ends. The message is for the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(path: str) -> None:
    """Run a worker, and return when it was stopped cleanly.

    Raises:
        CommandError: it could not start, or gave up.
    """
    set_up_logging()
    file = checked_file(path, DISTRIBUTED)
    with contextlib.ExitStack() as stack:
        stop = Stop()
        stack.enter_context(stop.on_signals())
        rest = listening(file, stack)
        grpc = serving_grpc(file, rest, stack)
        file, reached = reach_brokers(file, stop)
        rest.root["kafka_cluster_id"] = reached.cluster_id
        spark = started_spark(file, stop, stack)
        worker = made_worker(file, rest, grpc, spark, reached.config_topic)
        rest.serve(worker)
        grpc.serve(worker)
        stop.serve(worker)
        banner(file, worker, spark)
        with told_plainly(file):
            ends = read_ends(worker, stop)
        serve(worker, rest.service, ends, grpc)


def set_up_logging() -> None:
    log_format.set_up()


def checked_file(path: str, kind: str) -> WorkerFile:
    """Return the checked file of a worker.

    Raises CommandError, with all faults of the file, or with the first that keeps the worker's
    clients from being made.
    """
    from headgate_kafka.clients.settings import ClientSettingsError, check_worker_clients

    try:
        file = read_worker_file(path, kind)
    except PropertiesError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except WorkerFileError as error:
        count = len(error.problems)
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        what = "1 fault" if count == 1 else f"{count} faults"
        raise CommandError(
            f"nothing was started, the worker's file has {what}:\n{lines}", EXIT_USAGE
        ) from None
    try:
        check_worker_clients(file.properties, in_group=kind == DISTRIBUTED)
    except ClientSettingsError as error:
        file.transformer.close()
        raise CommandError(file.hide(f"{file.path}: {error}"), EXIT_USAGE) from None
    _check_runner(file)
    log_format.set_up(file.settings[log_format.KEY])
    for warning in file.warnings:
        log.warning("%s", warning)
    allow_modules(file.settings[SETTING])
    return file


def _check_runner(file: WorkerFile) -> None:
    """Check that the runner's extra is installed, before anything starts: many files name no
    runner. Raises CommandError: it is not."""
    if file.settings["headgate.task.runner"] != "spark":
        return
    try:
        require("pyspark")
    except MissingExtraError as error:
        file.transformer.close()
        raise CommandError(
            f"{file.path}: {error} (headgate.task.runner is spark; process needs nothing more)",
            EXIT_USAGE,
        ) from None


# -- stopping --


class StoppedError(Exception):
    """The user does not want to wait any longer for the start."""


class Stop:
    """Signal handling of a worker. The first signal stops it cleanly, and a second Ctrl-C kills it.
    A second SIGTERM does not: service managers may send it to a process and to its group."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._worker: Worker | None = None

    def serve(self, worker: Worker) -> None:
        """Direct signals to this worker from now on."""
        self._worker = worker
        if self.asked.is_set():
            worker.stop()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises StoppedError if a signal comes."""
        if self.asked.wait(seconds):
            raise StoppedError

    def ask(self) -> None:
        """Stop cleanly, as after the first signal."""
        self.asked.set()
        if self._worker is not None:
            self._worker.stop()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.asked.is_set() and number == signal.SIGINT:
            self._kill()
        self.ask()

    def _kill(self) -> None:
        """Kill the tasks, and then this process. Otherwise tasks would live on until they miss
        their worker."""
        if self._worker is not None:
            killer = threading.Thread(target=self._worker.kill_tasks, daemon=True)
            killer.start()
            killer.join(KILL_GRACE_S)
        os._exit(EXIT_KILLED)


# -- the parts --


class Rest:
    """The REST server. It exists before the worker whose calls it takes."""

    def __init__(self, file: WorkerFile) -> None:
        from headgate_rest import ListenError, RestService, RestSettings

        self.root: dict[str, Any] = {
            "version": importlib.metadata.version("headgate"),
            "commit": "unknown",
            "kafka_cluster_id": None,
        }
        self.loggers = Loggers()
        self._worker: Worker | None = None
        try:
            settings = RestSettings.of(file.properties)
        except ValueError as error:
            raise CommandError(f"{file.path}: {error}", EXIT_USAGE) from None
        self._plugins = RestPlugins(file.settings, file.transformer)
        try:
            self.service: RestService = RestService(
                settings,
                root=self.root,
                plugins=self._plugins,
                loggers=self.loggers,
                session_keys=self.session_keys,
                sessioned=self._sessioned,
                error_text=self._error_text,
                metrics=_metrics(file.settings),
                arrived=self._on_call,
            )
        except ListenError as error:
            raise CommandError(f"{file.path}: {error.key}: {error.strerror}", EXIT_FAILED) from None

    def serve(self, worker: Worker) -> None:
        """Pass all calls to this worker from now on."""
        self._worker = worker
        worker.show_calls(self._plugins.calls)

    def _on_call(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    def _error_text(self) -> str:
        return "" if self._worker is None else self._worker.gave_up

    def session_keys(self) -> KeyRing:
        return KeyRing() if self._worker is None else self._worker.herder.session_keys

    def grpc_address(self, url: str) -> str:
        """`Herder.grpc_address`."""
        return "" if self._worker is None else self._worker.herder.grpc_address(url)

    def _sessioned(self) -> bool:
        protocol = "" if self._worker is None else self._worker.herder.protocol
        return protocol in RULES and RULES[protocol].signed


def _metrics(settings: WorkerSettings) -> "Callable[[Mapping[str, Any]], bytes] | None":
    """Return a function that makes the text of ``/metrics`` from a worker's view. Return None if
    its library is not installed. The library is loaded at the first scrape."""
    if importlib.util.find_spec("prometheus_client") is None:
        return None

    def text(view: Mapping[str, Any]) -> bytes:
        from headgate_runtime.observe.metrics import metrics

        names = settings[CONNECT_NAMES]
        return metrics([wire.from_plain(WorkerView, view)], connect=names)

    return text


def listening(file: WorkerFile, stack: contextlib.ExitStack) -> Rest:
    rest = Rest(file)
    rest.service.start()
    stack.callback(rest.service.close)
    return rest


class Grpc:
    """The gRPC server of a worker whose file names listeners for it."""

    def __init__(self, file: WorkerFile, rest: Rest, stack: contextlib.ExitStack) -> None:
        from headgate_runtime.api.serving import (
            UnservedError,
            internal_address,
            internal_credentials,
            serve_worker,
        )
        from headgate_runtime.api.worker_backend import WorkerBackend

        plugins = RestPlugins(file.settings, file.transformer)
        self._backend = WorkerBackend(rest.service, rest.root, plugins, rest.loggers)
        self._rest, self._stack = rest, stack
        self.address = ""
        """Address under which other workers call this one by gRPC. Empty: they do not."""
        self._credentials: ChannelCredentials | None = None
        internal = _internal(self._backend, rest) if file.settings[INTERNAL_KEY] else None
        try:
            self._server = serve_worker(file.settings, self._backend, stack, internal)
            if internal is not None:
                host = urlsplit(rest.service.url).hostname or ""
                self.address = internal_address(file.settings, host, self._server.bound)
                internal.address = self.address
                self._credentials = internal_credentials(file.settings)
        except UnservedError as error:
            raise CommandError(f"{file.path}: {error}", EXIT_FAILED) from None

    def peers(self) -> Peers:
        """Return the peers that carry calls to other workers and take theirs."""
        if not self.address:
            return self._rest.service
        from headgate_grpc.internal.peers import GrpcPeers

        rest = self._rest
        peers = GrpcPeers(rest.service, rest.grpc_address, rest.session_keys, self._credentials)
        self._stack.callback(peers.close)
        return peers

    def serve(self, worker: Worker) -> None:
        """Pass all calls to this worker from now on."""
        self._backend.serve(worker)

    def ready(self) -> None:
        self._backend.ready = True
        self._server.ready()

    def stopping(self) -> None:
        """Refuse new calls: a stop begins."""
        self._server.stopping()


class NoGrpc:
    address = ""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def peers(self) -> Peers:
        return self._rest.service

    def serve(self, worker: Worker) -> None:
        pass

    def ready(self) -> None:
        pass

    def stopping(self) -> None:
        pass


def serving_grpc(file: WorkerFile, rest: Rest, stack: contextlib.ExitStack) -> Grpc | NoGrpc:
    """Serve gRPC if the file has listeners for it. Raises CommandError: a listener is wrong, or
    cannot be opened."""
    if file.settings["headgate.grpc.listeners"]:
        return Grpc(file, rest, stack)
    if file.settings[INTERNAL_KEY]:
        text = f"{INTERNAL_KEY} is true, but headgate.grpc.listeners is empty"
        raise CommandError(f"{file.path}: {text}", EXIT_USAGE)
    return NoGrpc(rest)


def _internal(backend: "WorkerBackend", rest: Rest) -> "WorkerService":
    try:
        from headgate_grpc.internal.service import WorkerService
    except ImportError as error:
        text = f"{INTERNAL_KEY}: {error}; install the extra: pip install 'headgate[grpc]'"
        raise CommandError(text, EXIT_FAILED) from None
    return WorkerService(backend.ask_as_peer, rest.session_keys)


def reach_brokers(file: WorkerFile, stop: Stop) -> "tuple[WorkerFile, Reached]":
    """Return the file, with what clients must know of the brokers, and the brokers' answers. For a
    distributed worker, the internal topics then exist and are in order."""
    from headgate_kafka.admin.topics import (
        TopicRefusedError,
        prepare_internal_topics,
        reach_cluster,
    )
    from headgate_kafka.clients.settings import ClientSettingsError, knowing_cluster

    ask = prepare_internal_topics if file.kind == DISTRIBUTED else reach_cluster
    with told_plainly(file):
        try:
            reached = ask(file.properties, warn=log.warning, sleep=stop.sleep)
        except ClientSettingsError as error:
            raise CommandError(f"{file.path}: {error}", EXIT_USAGE) from None
        except TopicRefusedError as error:
            raise CommandError(str(error), EXIT_FAILED) from None
    properties = knowing_cluster(file.properties, reached.broker_count)
    return dataclasses.replace(file, properties=properties), reached


@contextlib.contextmanager
def told_plainly(file: WorkerFile) -> Iterator[None]:
    """Turn errors of missing brokers during a start into `CommandError`."""
    try:
        yield
    except StoppedError:
        raise CommandError("stopped before the worker had started", EXIT_FAILED) from None
    except TransportError as error:
        raise CommandError(f"{error} ({file.path})", EXIT_FAILED) from None


def started_spark(file: WorkerFile, stop: Stop, stack: contextlib.ExitStack) -> dict[str, str]:
    """Return the worker's settings of Spark: one that it shares, or `headgate.spark.remote`."""
    settings = file.settings
    if settings["headgate.task.runner"] != "spark":
        return {}
    try:
        spark = spark_settings(settings)
        if spark.remote is not None:
            return of_remote(spark)
    except UpError as error:
        raise CommandError(f"{file.path}: {error}", error.exit_code) from None
    service = SharedSpark(
        Path(settings["headgate.data"] or default_folder()).absolute(),
        spark,
        settings["headgate.spark.slots"],
        settings["headgate.spark.idle.ms"] / 1000,
        warn=log.info,
        where=f"{file.path}: headgate.spark.master",
        host_setting=f"{HOST_SETTING} in {file.path}",
    )
    stack.callback(service.close)
    try:
        service.start()
    except UpError as error:
        raise CommandError(str(error), error.exit_code) from None
    watch = SparkWatch(service.tick, stop.ask)
    stack.callback(watch.close)
    return service.worker_settings()


class SparkWatch:
    """Watches a Spark that runs beside the worker.

    Args:
        tick: `SharedSpark.tick`.
        failed: called when the first start has failed.
    """

    def __init__(self, tick: Callable[[], None], failed: Callable[[], None]) -> None:
        self._tick = tick
        self._failed = failed
        self._error: UpError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-spark", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch. Raises CommandError if Spark could not be started, which is why the worker
        stops."""
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise CommandError(str(self._error), self._error.exit_code)

    def _watch(self) -> None:
        while not self._ended.wait(SPARK_LOOK_S):
            try:
                self._tick()
            except UpError as error:
                self._error = error
                self._failed()
                return


def made_worker(
    file: WorkerFile,
    rest: Rest,
    grpc: Grpc | NoGrpc,
    spark: Mapping[str, str],
    config_topic: str,
) -> Worker:
    config = WorkerConfig(
        name=rest.service.worker_id,
        url=rest.service.url,
        transport={**file.properties, "kind": "kafka"},
        settings=file.settings.texts,
        spark=spark,
        config_topic=config_topic,
        grpc=grpc.address,
    )
    inner = open_transport(transport_settings(config, file.settings), config.url)
    transport = WithPeers(inner, LoggedPeers(grpc.peers()))
    kafka = cast("KafkaTransport", inner)
    look = OffsetsLook(kafka.offsets_check.look, file.settings["offset.storage.topic"])
    return Worker(config, file.settings, transport, rest.loggers, file.transformer, look)


def read_ends(worker: Worker, stop: Stop) -> tuple[int, int]:
    """Return the positions of the ends of the config topic and the status topic. Everything before
    them is fetched.

    Raises:
        RefusedError: this worker may not read them.
        TransportError: they were not read within `READ_S`. It is long enough for a dead leader's
            transaction to time out.
    """
    transport, until = worker.transport, time.monotonic() + READ_S
    while True:
        try:
            return transport.config_log.end(), transport.status_log.end()
        except TransportError as error:
            if isinstance(error, RefusedError) or time.monotonic() > until:
                raise
            log.warning("the internal topics cannot be read yet: %s", error)
        stop.sleep(READ_PAUSE_S)


def serve(
    worker: Worker,
    service: "RestService",
    ends: tuple[int, int],
    grpc: Grpc | NoGrpc,
    before_close: Callable[[], None] = lambda: None,
) -> None:
    """Run the worker. `before_close` is called when nothing runs any more, while the logs are still
    open."""

    def ready() -> None:
        service.ready()
        grpc.ready()

    collector.settle()
    worker.run(ready=ready, after=ends, before_close=before_close, stopping=grpc.stopping)
    log.info("worker %s has stopped", worker.config.name)
    if worker.gave_up:
        raise CommandError(worker.gave_up, EXIT_FAILED)


def banner(file: WorkerFile, worker: Worker, spark: Mapping[str, str]) -> None:
    settings = file.settings
    where = f" ({shown_remote(spark['remote'])})" if "remote" in spark else ""
    group = f"group {settings['group.id']}" if file.kind == DISTRIBUTED else "standalone"
    log.info(
        "Headgate %s, worker %s: %s at %s, listening at %s, tasks run on %s%s, "
        "exactly-once sources %s",
        importlib.metadata.version("headgate"),
        worker.config.name,
        group,
        ",".join(settings["bootstrap.servers"]),
        ", ".join(settings["listeners"]),
        settings["headgate.task.runner"],
        where,
        settings["exactly.once.source.support"],
    )
