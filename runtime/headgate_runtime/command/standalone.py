"""``headgate standalone WORKER.properties CONNECTOR...``: one worker without a group.

Source: ConnectStandalone, StandaloneHerder.

Differs: an invalid connector from a file ends the command before any other has done something.
`exactly.once.support=required` is refused, because there is no exactly-once here. Offsets are
written within a second, not each `offset.flush.interval.ms`. Restarts of unknown connectors and
tasks are answered 404 and leave nothing behind.

Differs: a connector from a file whose `task_configs` raises ends the command, as one whose `start`
raises does (Java waits for ever). `headgate_runtime.standalone.answers` describes the differences
in answers.
"""

import contextlib
import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headgate.herder.messages import CreateConnector, ErrorKind, Failure, Result, Success
from headgate_runtime.command.worker import (
    EXIT_FAILED,
    EXIT_USAGE,
    CommandError,
    Rest,
    Stop,
    banner,
    checked_file,
    listening,
    reach_brokers,
    serve,
    serving_grpc,
    set_up_logging,
    started_spark,
)
from headgate_runtime.config.connector_files import ConnectorFileError, read_connector_file
from headgate_runtime.config.settings import STANDALONE
from headgate_runtime.config.worker_file import WorkerFile
from headgate_runtime.plugins.validation import config_error
from headgate_runtime.standalone.answers import StandalonePeers, WithStandalonePeers
from headgate_runtime.standalone.offset_file import OffsetFile, OffsetFileError
from headgate_runtime.transports.select import open_transport
from headgate_runtime.transports.standalone import OffsetKeeper
from headgate_runtime.worker.config import WorkerConfig
from headgate_runtime.worker.loop import Worker

log = logging.getLogger(__name__)

EXIT_CONNECTOR = 3
"""Connect's exit code for a connector from a file that could not be made, or did not start."""
READY_S = 90.0
"""How long to wait for the worker to be ready for a connector, in seconds."""
CREATE_MS = 3_600_000
"""How long a connector may take to start, in ms. Java's worker waits without a limit."""
AGAIN_S = 0.2
_AGAIN = frozenset({ErrorKind.NOT_READY, ErrorKind.CONFLICT})


def run(path: str, connector_paths: Sequence[str]) -> None:
    """Run a worker. Return when it was stopped cleanly.

    Raises:
        CommandError: it could not start, or a connector could not be made.
    """
    set_up_logging()
    file = checked_file(path, STANDALONE)
    connectors = _connectors(file, connector_paths)
    offset_file = OffsetFile(file.settings["offset.storage.file.filename"])
    with _told_of_offsets(file):
        offset_file.check_writable()
        offset_file.load()
    with contextlib.ExitStack() as stack:
        stop = Stop()
        stack.enter_context(stop.on_signals())
        rest = listening(file, stack)
        rest.service.without_group()
        grpc = serving_grpc(file, rest, stack)
        file, reached = reach_brokers(file, stop)
        rest.root["kafka_cluster_id"] = reached.cluster_id
        spark = started_spark(file, stop, stack)
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="headgate-", ignore_cleanup_errors=True)
        )
        worker, keeper = _made_worker(file, rest, spark, folder, offset_file)
        rest.serve(worker)
        grpc.serve(worker)
        stop.serve(worker)
        banner(file, worker, spark)
        maker = _Maker(worker, rest, connectors)
        threading.Thread(target=maker.run, name="connector-files", daemon=True).start()
        ends = (worker.transport.config_log.end(), worker.transport.status_log.end())
        with _told_of_offsets(file):
            serve(worker, rest.service, ends, grpc, keeper.close)
    if maker.failure is not None:
        raise CommandError(maker.failure, EXIT_CONNECTOR)


@contextlib.contextmanager
def _told_of_offsets(file: WorkerFile) -> Iterator[None]:
    try:
        yield
    except OffsetFileError as error:
        raise CommandError(
            f"{file.path}: offset.storage.file.filename: {error}", EXIT_FAILED
        ) from None


def _connectors(file: WorkerFile, paths: Sequence[str]) -> list[CreateConnector]:
    found: dict[str, CreateConnector] = {}
    for path in paths:
        try:
            made = read_connector_file(path)
        except ConnectorFileError as error:
            raise CommandError(str(error), EXIT_USAGE) from None
        if made.name in found:
            raise CommandError(
                f"{path}: connector {made.name} is in an earlier file too", EXIT_USAGE
            )
        refusal = config_error(made.name, made.config, file.settings, file.transformer)
        if refusal is not None:
            raise CommandError(f"{path}: {refusal}", EXIT_CONNECTOR)
        found[made.name] = made
    return list(found.values())


def _made_worker(
    file: WorkerFile, rest: Rest, spark: dict[str, str], folder: str, offset_file: OffsetFile
) -> tuple[Worker, OffsetKeeper]:
    from headgate_embedded import transport_settings

    transport = {**file.properties, **transport_settings(Path(folder)), "kind": "standalone"}
    config = WorkerConfig(
        name=rest.service.worker_id,
        url=rest.service.url,
        transport=transport,
        settings=file.settings.texts,
        spark=spark,
    )
    inner = open_transport(transport, config.url)
    keeper = OffsetKeeper(offset_file, inner.offset_log)
    with _told_of_offsets(file):
        keeper.load()
    peers = StandalonePeers(rest.service)
    transport_with_peers = WithStandalonePeers(inner, peers)
    worker = Worker(config, file.settings, transport_with_peers, rest.loggers, file.transformer)
    peers.serve(worker.herder)
    return worker, keeper


class _Maker:
    """Makes the connectors of the files once the worker takes calls. If one fails, it stops the
    worker."""

    def __init__(self, worker: Worker, rest: Rest, connectors: Sequence[CreateConnector]) -> None:
        self.failure: str | None = None
        self._worker = worker
        self._rest = rest
        self._connectors = connectors

    def run(self) -> None:
        for connector in self._connectors:
            result = self._made(connector)
            if isinstance(result, Failure):
                self.failure = f"Failed to create connector {connector.name}: {result.message}"
                self._worker.stop()
                return
            log.info("created connector %s", connector.name)

    def _made(self, connector: CreateConnector) -> Result:
        until: float | None = None
        while True:
            result = self._asked(connector)
            if isinstance(result, Success) or result.kind not in _AGAIN:
                return result
            until = until or time.monotonic() + READY_S
            if time.monotonic() > until:
                return result
            time.sleep(AGAIN_S)

    def _asked(self, connector: CreateConnector) -> Result:
        try:
            return self._rest.service.ask(connector, CREATE_MS)
        except TimeoutError:
            text = f"the worker has not answered within {CREATE_MS} ms"
            return Failure(ErrorKind.TIMEOUT, text)
