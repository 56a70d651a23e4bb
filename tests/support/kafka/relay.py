"""A relay in front of a broker that holds back one kind of request of one client, or loses an
answer."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

INIT_PRODUCER_ID = 22
END_TXN = 26
_WORK_S = 1.0
"""Seconds that the broker has for a request whose answer is lost."""


@dataclass
class Relay:
    """One relay. The broker must advertise its `port`."""

    listener: socket.socket
    broker_port: int
    held: threading.Event = field(default_factory=threading.Event)
    """A request is held back, or was."""
    _let: threading.Event = field(default_factory=threading.Event)
    _kind: tuple[int, bytes] | None = None
    _loses: bool = False

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def hold(self, api_key: int, client_id: str) -> None:
        """Hold back requests of this kind from now on, until `release`."""
        self.held.clear()
        self._let.clear()
        self._kind = api_key, client_id.encode()

    def lose_answer(self, api_key: int, client_id: str) -> None:
        """Pass on the next request of this kind, and cut its client off before the answer. Hold
        back the requests after it until `release`."""
        self.hold(api_key, client_id)
        self._loses = True

    def release(self) -> None:
        self._kind, self._loses = None, False
        self._let.set()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
                for pump, one, other in (
                    (self._requests, client, broker),
                    (_answers, broker, client),
                ):
                    threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as asked:
            while size := asked.read(4):
                request = asked.read(int.from_bytes(size))
                if self._kind == _kind_of(request):
                    if self._loses:
                        self._loses = False
                        _end(client)
                        broker.sendall(size + request)
                        time.sleep(_WORK_S)
                        break
                    self.held.set()
                    self._let.wait(30)
                broker.sendall(size + request)
        _end(broker)


def _kind_of(request: bytes) -> tuple[int, bytes]:
    """Return the API key and the client id of a request."""
    length = max(0, int.from_bytes(request[8:10], signed=True))
    return int.from_bytes(request[:2]), request[10 : 10 + length]


def _answers(broker: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while answer := broker.recv(65536):
            client.sendall(answer)
    _end(client)


def _end(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay_to(broker_port: int) -> Iterator[Relay]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(listener, broker_port)
        threading.Thread(target=relay.serve, daemon=True).start()
        yield relay
        relay.release()
        _end(listener)
