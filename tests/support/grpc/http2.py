"""A client of HTTP/2 that does only what a test calls: it acknowledges no settings, answers no
ping, and reads nothing by itself."""

import socket
import struct
import time
from typing import Final, NamedTuple, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0x0, 0x1, 0x4, 0x6, 0x7, 0x8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
WINDOW_SETTING: Final = 0x4
CALM: Final = 0xB
"""Error code ENHANCE_YOUR_CALM."""


class Frame(NamedTuple):
    type: int
    flags: int
    stream: int
    body: bytes

    @property
    def error_code(self) -> int:
        """Error code of a GOAWAY frame."""
        return int.from_bytes(self.body[4:8])


class RawHttp2:
    """One connection to ``grpc://host:port``."""

    def __init__(self, address: str, *, window: int = 65_535) -> None:
        """`window` is how many bytes the server may send on a stream before they are read."""
        host, _, port = address.removeprefix("grpc://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self._window = window
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def greet(self) -> None:
        """Send the preface and the settings with which every connection begins."""
        self.socket.sendall(PREFACE)
        self.send(SETTINGS, body=struct.pack(">HI", WINDOW_SETTING, self._window))

    def send(self, type_: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> None:
        head = len(body).to_bytes(3) + bytes([type_, flags]) + stream.to_bytes(4)
        self.socket.sendall(head + body)

    def call(self, stream: int, path: str, message: bytes = b"") -> None:
        """Send one call with its complete request."""
        headers = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
        self.send(HEADERS, END_HEADERS, stream, b"".join(_literal(*each) for each in headers))
        self.send(DATA, END_STREAM, stream, b"\0" + len(message).to_bytes(4) + message)

    def frame(self, timeout_s: float) -> Frame | None:
        """Return the next frame, or None if the server has closed the connection.

        Raises:
            TimeoutError: no frame has come in time.
        """
        until = time.monotonic() + timeout_s
        while len(self._buffer) < 9 or len(self._buffer) < 9 + self._length:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                more = self.socket.recv(65_536)
            except ConnectionError:
                return None
            if not more:
                return None
            self._buffer += more
        head, end = self._buffer[:9], 9 + self._length
        body, self._buffer = self._buffer[9:end], self._buffer[end:]
        return Frame(head[3], head[4], int.from_bytes(head[5:9]), body)

    def until_closed(self, timeout_s: float) -> list[Frame]:
        """Return all frames up to the end of the connection.

        Raises:
            TimeoutError: the connection is still open.
        """
        until, found = time.monotonic() + timeout_s, list[Frame]()
        while (frame := self.frame(max(until - time.monotonic(), 0.001))) is not None:
            found.append(frame)
        return found

    @property
    def _length(self) -> int:
        return int.from_bytes(self._buffer[:3])


def _literal(name: str, value: str) -> bytes:
    """Return a header field that is in no table (RFC 7541, 6.2.2)."""
    found = b"\0"
    for text in (name, value):
        assert len(text) < 127
        found += bytes([len(text)]) + text.encode()
    return found
