"""A whole worker in this process behind the REST API.

The herder and its loop are the real ones, on an embedded log, with tasks on threads.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.rest.world import LOCAL, wait_until

from headgate.herder.session_keys import KeyRing
from headgate_embedded import open_transport, transport_settings
from headgate_rest import RestService, RestSettings
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.standalone.answers import StandalonePeers, WithStandalonePeers
from headgate_runtime.transports.with_peers import WithPeers
from headgate_runtime.worker.config import WorkerConfig
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.loop import Worker


@contextmanager
def rest_worker(
    folder: Path,
    given: Mapping[str, str] | None = None,
    *,
    standalone: bool = False,
    rest: Mapping[str, str] = LOCAL,
) -> Iterator[RestService]:
    """Run a worker that is the only member of its group, from when it has joined.

    Args:
        standalone: it answers as a standalone worker does, which has no group.
        rest: settings of its REST server.
    """
    with whole_worker(folder, given, standalone=standalone, rest=rest) as (service, _):
        yield service


@contextmanager
def whole_worker(
    folder: Path,
    given: Mapping[str, str] | None = None,
    *,
    standalone: bool = False,
    rest: Mapping[str, str] = LOCAL,
    stopping: Callable[[], None] = lambda: None,
) -> Iterator[tuple[RestService, Worker]]:
    """Run the worker of `rest_worker`, and yield its REST service and the worker itself.

    Args:
        stopping: called when the worker begins to stop.
    """
    texts = {"headgate.task.runner": "thread", **(given or {})}
    settings = WorkerSettings.parse(texts)
    worker: Worker | None = None

    def wake() -> None:
        if worker is not None:
            worker.wake()

    service = RestService(
        RestSettings.of(rest),
        root={"version": "test", "commit": "c", "kafka_cluster_id": "embedded"},
        plugins=RestPlugins(settings),
        loggers=Loggers(),
        session_keys=KeyRing,
        sessioned=lambda: False,
        arrived=wake,
    )
    log = open_transport(transport_settings(folder), url=service.url)
    config = WorkerConfig(service.worker_id, service.url, transport_settings(folder), texts)
    if standalone:
        service.without_group()
        peers = StandalonePeers(service)
        worker = Worker(config, settings, WithStandalonePeers(log, peers))
        peers.serve(worker.herder)
    else:
        worker = Worker(config, settings, WithPeers(log, service))
    thread = threading.Thread(
        target=worker.run, args=(service.ready,), kwargs={"stopping": stopping}
    )
    service.start()
    thread.start()
    try:
        wait_until(lambda: worker.herder.view().settled, 20)
        yield service, worker
    finally:
        worker.stop()
        thread.join()
        service.close()
