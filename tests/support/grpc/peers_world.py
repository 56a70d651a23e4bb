"""Workers that call each other by gRPC on real sockets, for tests of the calls between workers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.rest.serving import serving_meanwhile
from support.rest.world import Keys, service

from headgate.herder.messages import Call, Result
from headgate.herder.session_keys import KeyRing
from headgate.topics.config_events import SessionKeyChanged
from headgate_grpc.internal.peers import GrpcPeers
from headgate_grpc.internal.service import WorkerService
from headgate_grpc.listeners import Listener
from headgate_grpc.server import GrpcServer
from headgate_rest import RestService

NOBODY = "127.0.0.1:9"
"""The port of "discard", where nobody listens."""
KEY = SessionKeyChanged(0, b"k" * 32, "HmacSHA256", 0)


class NothingPublic:
    """A backend for the public services, which these tests do not call."""

    ready = False


@dataclass
class GrpcWorker:
    """One worker of the world. `peers` is its port to the others."""

    rest: RestService
    internal: WorkerService
    server: GrpcServer
    peers: GrpcPeers
    keys: Keys

    @property
    def address(self) -> str:
        return self.internal.address

    @property
    def boot(self) -> bytes:
        return self.internal.verifier.boot

    def close(self) -> None:
        self.peers.close()
        self.server.close()
        self.rest.close()


class GrpcWorld:
    def __init__(self, _folder: Path) -> None:
        self.workers: dict[str, GrpcWorker] = {}

    def connect(self, url: str = "") -> GrpcWorker:
        if url not in self.workers:
            self.workers[url] = self._made()
        return self.workers[url]

    def _made(self) -> GrpcWorker:
        keys = Keys(KEY)
        rest = service(keys=keys)

        async def ask(call: Call, hops: int, timeout_ms: int) -> Result:
            return await rest.asked(call, timeout_ms, hops)

        def ring() -> KeyRing:
            return KeyRing(keys.key, keys.also)

        internal = WorkerService(ask, ring)
        backend: Any = NothingPublic()
        server = GrpcServer((Listener("127.0.0.1", 0),), backend, more=(internal.handler(),))
        server.start()
        internal.address = f"127.0.0.1:{server.bound[0].port}"
        peers = GrpcPeers(rest, self._address, ring)
        return GrpcWorker(rest, internal, server, peers, keys)

    def _address(self, url: str) -> str:
        found = self.workers.get(url)
        return NOBODY if found is None else found.address

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]:
        return serving_meanwhile(serve)

    def close(self) -> None:
        for made in self.workers.values():
            made.close()
