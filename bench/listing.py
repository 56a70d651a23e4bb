"""The CPU that listing connectors costs a worker and its herder, by REST and by gRPC.

A worker process holds 10,000 connectors with two tasks each, all RUNNING according to the status
topic. It never joins its group, so it has nothing else to do. Rounds of REST and gRPC take turns.
Heartbeats must wait while the herder's thread uses CPU. The worker keeps rows between listings.
"All new" is a listing for which every row has to be made.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from headgate.herder.session_keys import KeyRing
from headgate.ids import State, TaskId
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.topics.config_records import encode_commit, encode_connector, encode_task
from headgate.topics.status import Status, encode_connector_status, encode_task_status
from headgate_embedded import open_transport, transport_settings
from headgate_grpc.client import Client
from headgate_grpc.listeners import Listener
from headgate_grpc.server import GrpcServer
from headgate_grpc.v1 import connector_pb2, connector_service_pb2
from headgate_rest import RestService, RestSettings
from headgate_runtime.api.worker_backend import WorkerBackend
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.transports.with_peers import WithPeers
from headgate_runtime.worker import collector
from headgate_runtime.worker.config import WorkerConfig
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.loop import Worker

CONNECTORS: Final = 10_000
TASKS: Final = 2
ROUNDS: Final = 9
PAGE: Final = 1_000
SETTINGS: Final = {"headgate.task.runner": "thread"}
WORKER_ID: Final = "worker-1.example.org:8083"


def run() -> Iterator[str]:
    """Yield report lines: medians of `ROUNDS`, in milliseconds of CPU of the worker's process."""
    with tempfile.TemporaryDirectory() as folder:
        write_topics(Path(folder))
        command = [sys.executable, "-m", "bench.listing", folder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
            try:
                yield from _measured(process)
            finally:
                process.stdin.close()


def _measured(process: Any) -> Iterator[str]:
    import httpx

    served = json.loads(process.stdout.readline())
    with (
        httpx.Client(base_url=served["rest"], trust_env=False, timeout=60) as rest,
        Client(served["grpc"], timeout_s=60) as grpc,
    ):

        def by_rest() -> int:
            answer = rest.get("/connectors", params={"expand": "status"})
            assert len(answer.json()) == CONNECTORS
            return len(answer.content)

        def by_grpc() -> int:
            return _listed(grpc, 10_000)

        def by_pages() -> int:
            return _listed(grpc, PAGE)

        def one_page() -> int:
            return _listed(grpc, PAGE, pages=1)

        kinds: dict[str, Callable[[], int]] = {
            "REST, all new": by_rest,
            "gRPC, all new": by_grpc,
            "REST": by_rest,
            "gRPC": by_grpc,
            f"gRPC, {CONNECTORS // PAGE} pages": by_pages,
            "gRPC, one page": one_page,
        }
        spent: dict[str, list[tuple[float, float, float]]] = {name: [] for name in kinds}
        sizes: dict[str, int] = {}
        for _ in range(ROUNDS + 1):
            for name, ask in kinds.items():
                before = _used(process, new=name.endswith("all new"))
                began = time.perf_counter()
                sizes[name] = ask()
                wall, after = time.perf_counter() - began, _used(process)
                pair = zip(before, after, strict=True)
                total, herder = (late - early for early, late in pair)
                spent[name].append((total, herder, wall * 1000))
    totals = {}
    for name, rounds in spent.items():
        total, herder, wall = (statistics.median(each[i] for each in rounds[1:]) for i in range(3))
        totals[name] = total
        yield (
            f"{name:16} {total:6.0f} ms CPU, of which herder {herder:5.0f} ms; "
            f"wall {wall:6.0f} ms; {sizes[name] / 1e6:.2f} MB"
        )
    for new in (", all new", ""):
        ratio = totals[f"gRPC{new}"] / totals[f"REST{new}"]
        yield f"gRPC to REST, CPU{new}: {ratio:.2f}"


def _listed(client: Client, page_size: int, pages: int | None = None) -> int:
    """Read a whole listing, or its first pages. Returns the bytes of the answers."""
    found = size = asked = 0
    token = ""
    while asked != pages:
        request = connector_service_pb2.ListConnectorsRequest(
            view=connector_pb2.CONNECTOR_VIEW_STATUS, page_size=page_size, page_token=token
        )
        answer = client.connectors.ListConnectors(request)
        asked += 1
        found += len(answer.connectors)
        size += answer.ByteSize()
        token = answer.next_page_token
        if not token:
            break
    assert found == (CONNECTORS if pages is None else pages * page_size)
    return size


def _used(process: Any, *, new: bool = False) -> tuple[float, float]:
    """Return the milliseconds of CPU that the worker's process and its herder's thread have used.

    Args:
        new: make the worker forget the rows it has kept.
    """
    process.stdin.write("new\n" if new else "\n")
    process.stdin.flush()
    total, herder = json.loads(process.stdout.readline())
    return total, herder


# -- the worker's process --


def write_topics(folder: Path) -> None:
    """Write the config topic and the status topic of `CONNECTORS` running connectors."""
    transport = open_transport(transport_settings(folder))
    configs: list[tuple[str, bytes | None]] = []
    statuses: list[tuple[str, bytes | None]] = []
    running = Status(State.RUNNING, WORKER_ID, 1)
    for number in range(CONNECTORS):
        name = f"orders-of-region-{number:05}"
        config = {"connector.class": "FileStreamSource", "file": name, "topic": name}
        configs.append(encode_connector(name, config))
        statuses.append(encode_connector_status(name, running))
        for task in range(TASKS):
            configs.append(encode_task(TaskId(name, task), config))
            statuses.append(encode_task_status(TaskId(name, task), running))
        configs.append(encode_commit(name, TASKS))
    transport.config_log.append(configs, privileged=False)
    transport.status_log.append([(key.encode(), value) for key, value in statuses])
    transport.close()


class NoGroup:
    """A coordinator that never answers."""

    def send(self, request: GroupRequest) -> None:
        """Ignore the request."""

    def receive(self) -> Sequence[GroupResponse]:
        return ()

    def overdue(self) -> bool:
        return False


def serve(folder: Path) -> None:
    """Run the worker. It prints its address, and for each line of standard input the CPU it has
    used."""
    settings = WorkerSettings.parse(SETTINGS)
    worker: Worker | None = None
    rest = RestService(
        RestSettings.of({"listeners": "http://127.0.0.1:0"}),
        root={"version": "bench", "commit": "c", "kafka_cluster_id": "embedded"},
        plugins=RestPlugins(settings),
        loggers=Loggers(),
        session_keys=KeyRing,
        sessioned=lambda: False,
        arrived=lambda: worker.wake() if worker is not None else None,
    )
    log: Any = open_transport(transport_settings(folder), url=rest.url)
    log.group = NoGroup()
    config = WorkerConfig(rest.worker_id, rest.url, transport_settings(folder), SETTINGS)
    worker = Worker(config, settings, WithPeers(log, rest))
    read = threading.Event()
    ends = log.config_log.end(), log.status_log.end()
    thread = threading.Thread(target=worker.run, args=(read.set, ends), daemon=True)
    rest.start()
    thread.start()
    read.wait()
    rest.ready()
    backend = WorkerBackend(rest, {}, RestPlugins(settings), Loggers())
    backend.serve(worker)
    backend.ready = True
    server = GrpcServer((Listener("127.0.0.1", 0),), backend)
    server.start()
    collector.settle()
    print(json.dumps({"rest": rest.url, "grpc": str(server.bound[0])}), flush=True)
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    for line in sys.stdin:
        if line.strip():
            worker.herder._rows._kept.clear()
        used = time.process_time_ns() / 1e6, time.clock_gettime_ns(clock) / 1e6
        print(json.dumps(used), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
