"""A proxy to a broker that a test can shut or silence, so that its clients stand still."""

import contextlib
import socket
import threading


class HeldPort:
    """A proxy port. While it is shut, connections are accepted, but nothing is passed on until it
    is opened.

    Only connections for bootstrapping come here, because brokers then give their own addresses. If
    the broker advertises this port, all connections come here.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._broker = (host, int(port))
        self._open = threading.Event()
        self._open.set()
        self.held = 0
        """How many have come since it was shut."""
        self._speaking = threading.Event()
        """Of the present generation of connections, which are held together."""
        self._speaking.set()
        self._silent: list[threading.Event] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.held = 0
        self._open.clear()

    def silence(self) -> None:
        """Cut the present connections off in both directions until `open`. Later connections go
        through."""
        self._speaking.clear()
        self._silent.append(self._speaking)
        self._speaking = threading.Event()
        self._speaking.set()

    def open(self) -> None:
        self._open.set()
        for speaking in self._silent:
            speaking.set()

    def close(self) -> None:
        self.open()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.held += not self._open.is_set()
        self._open.wait()
        speaking = self._speaking
        with (
            contextlib.suppress(OSError),  # the client may be gone by now, or the broker
            client,
            socket.create_connection(self._broker) as broker,
        ):
            back = threading.Thread(target=_pass_on, args=(broker, client, speaking), daemon=True)
            back.start()
            _pass_on(client, broker, speaking)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket, speaking: threading.Event) -> None:
    with contextlib.suppress(OSError):  # an end hung up
        while data := source.recv(65_536):
            speaking.wait()
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
