"""A whole worker in this process, behind the gRPC API and the REST API."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.rest.worker import whole_worker

from headgate_grpc.client import Client
from headgate_grpc.listeners import Listener
from headgate_grpc.server import GrpcServer
from headgate_rest import RestService
from headgate_runtime.api.worker_backend import WorkerBackend
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.loop import Worker


@dataclass
class Served:
    worker: Worker
    rest: RestService
    server: GrpcServer
    backend: WorkerBackend
    address: str
    client: Client


@contextmanager
def grpc_worker(folder: Path, given: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Run a worker that is served at a free port, from when it has joined its group."""
    servers: list[GrpcServer] = []

    def stopping() -> None:
        for each in servers:
            each.stopping()

    with whole_worker(folder, given, stopping=stopping) as (rest, worker), ExitStack() as stack:
        root = {"version": "test", "commit": "c", "kafka_cluster_id": "embedded"}
        backend = WorkerBackend(rest, root, RestPlugins(worker.settings), Loggers())
        backend.serve(worker)
        backend.ready = True
        server = GrpcServer((Listener("127.0.0.1", 0),), backend)
        server.start()
        servers.append(server)
        stack.callback(server.close)
        address = str(server.bound[0])
        client = stack.enter_context(Client(address, timeout_s=30))
        yield Served(worker, rest, server, backend, address, client)
