"""A way to a broker that a test can shut, so that who goes by it stands still there."""

import contextlib
import socket
import threading


class HeldPort:
    """While it is shut, who comes is let in, and hears nothing until it is opened.

    Only the way to who bootstraps here: brokers then tell their own addresses.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._broker = (host, int(port))
        self._open = threading.Event()
        self._open.set()
        self.held = 0
        """How many have come since it was shut."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.held = 0
        self._open.clear()

    def open(self) -> None:
        self._open.set()

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
        with (
            contextlib.suppress(OSError),  # whoever waited may be gone by now, or the broker
            client,
            socket.create_connection(self._broker) as broker,
        ):
            back = threading.Thread(target=_pass_on, args=(broker, client), daemon=True)
            back.start()
            _pass_on(client, broker)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # an end hung up
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
