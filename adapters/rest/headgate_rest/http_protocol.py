"""HTTP/1.1 on one connection, bounded: uvicorn's protocol, with limits of time and of CPU.

What uvicorn lacks: a time-out for requests that do not end, 431 and 408, turns for bodies that cost
much to read, an end to clients that do not read their answers.
"""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headgate_rest.connections import Connection, Connections
from headgate_rest.http import error_response
from headgate_rest.limits import SeldomLog
from headgate_rest.strict import StrictConnection

log = logging.getLogger(__name__)
log.addFilter(SeldomLog())

PIECE: Final = 4_096
"""Bytes that are read at once; in chunks of one byte they cost some milliseconds."""
LARGE_PIECE: Final = 65_536
"""The same of a body that is not in chunks, which costs little."""
TURN_S: Final = 0.005
"""How long the loop reads bodies before it does something else."""
FRAMING_MAX: Final = 3
"""How many times as long as a chunked body all that was sent for it may be, if that is more than
`FRAMING_FREE`: chunks of a byte cost more to read than to send."""
FRAMING_FREE: Final = 8_192
LINGER_S: Final = 2.0
"""How long a client that was refused may go on sending, so that it reads the answer."""


class Turns:
    """Protocols that have input, served in turn, some milliseconds in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[BoundedProtocol] = deque()
        self._asked = False

    def add(self, protocol: "BoundedProtocol") -> None:
        self._waiting.append(protocol)
        self._ask()

    def _ask(self) -> None:
        if self._waiting and not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._asked = False
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        while self._waiting and loop.time() < until:
            self._waiting.popleft().take_piece()
        self._ask()


class _Flow(FlowControl):
    """Reading goes on when uvicorn wants it to and all input was used."""

    def __init__(self, transport: asyncio.Transport, protocol: "BoundedProtocol") -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._protocol.read_on()


class BoundedProtocol(H11Protocol):
    """One connection. `Connections` hears when it waits for a request, and ends it if that takes
    too long."""

    def __init__(
        self,
        connections: Connections,
        turns: Turns,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = StrictConnection(h11.SERVER, connections.limits.header_bytes)
        self.logger = log
        self._connections = connections
        self._turns = turns
        self._entry: Connection | None = None
        self._input = bytearray()
        self._queued = False
        self._refused = False
        """What comes is thrown away, and the connection ends soon."""
        self._sent_for_body = 0
        self._working = False
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._entry = self._connections.of(transport.get_extra_info("socket").fileno())
        if self._entry is None:  # it was hung up before its protocol began
            transport.abort()
            return
        self._entry.end, self._entry.expire = transport.abort, self.expire
        self.app_state = {**self.app_state, "connection": self._entry}

    def connection_lost(self, exc: Exception | None) -> None:
        self._input.clear()
        super().connection_lost(exc)
        # They refer to this protocol, and would keep the body until the next collection of cycles.
        self.cycle = self.scope = None  # type: ignore[assignment]
        if self._entry is not None:
            self._entry.end = self._entry.expire = self._entry.hang_up

    # -- input --

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._input += data
        if self._queued or self.flow.read_paused:
            self.transport.pause_reading()
        elif self.conn.their_state is h11.SEND_BODY:
            self._queue()
        else:  # short requests do not wait for long bodies
            self.take_piece()

    def read_on(self) -> None:
        """Nothing keeps this connection from being read."""
        if self._input:
            self._queue()
        else:
            self.transport.resume_reading()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._turns.add(self)

    def take_piece(self) -> None:
        self._queued = False
        if self.flow.read_paused or self._refused or self.transport.is_closing():
            return
        size, in_body = PIECE, self.conn.their_state is h11.SEND_BODY
        if in_body:
            size = PIECE if self._is_chunked() else LARGE_PIECE
        piece = bytes(self._input[:size])
        del self._input[:size]
        self._sent_for_body = self._sent_for_body + len(piece) if in_body else 0
        super().data_received(piece)
        if in_body and self._has_tiny_chunks():
            self.refuse(400, "The chunks of the body are too small; send larger ones")
        if self._input and not self.flow.read_paused:
            self.transport.pause_reading()
            self._queue()
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def _has_tiny_chunks(self) -> bool:
        if self._entry is None or self.conn.their_state is not h11.SEND_BODY:
            return False
        come = self._entry.held + len(self.cycle.body)
        return self._sent_for_body > max(FRAMING_FREE, come * FRAMING_MAX)

    def handle_events(self) -> None:
        super().handle_events()
        self._say_state()

    def on_response_complete(self) -> None:
        self._working = False
        if self._entry is not None:
            self._entry.served = True
            self._connections.waits(self._entry)
        self._unsent = self.transport.get_write_buffer_size()
        if self.conn.their_state is h11.SEND_BODY:  # it was refused before its end
            self._linger()
        super().on_response_complete()

    def _say_state(self) -> None:
        cycle = self.cycle
        working = cycle is not None and not cycle.response_complete and not cycle.more_body
        if working and not self._working and self._entry is not None:
            self._connections.works(self._entry)
        self._working = working

    # -- refusals --

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this while it handles h11's error, whose hint may be another status."""
        error = sys.exception()
        status = 400
        if isinstance(error, h11.RemoteProtocolError):
            status, msg = error.error_status_hint, f"{msg} {error}"
        if status == 431:
            limit = self._connections.limits.header_bytes
            msg = (
                f"The request line and the headers are longer than {limit} bytes "
                "(headgate.rest.header.max.bytes)"
            )
        self.refuse(status, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answer without asking the application, and close."""
        if self._refused:
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer has begun: there is no other way to tell
            return
        answer = error_response(status, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer.body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._linger()

    def _linger(self) -> None:
        """Close, but not at once: a socket that is closed with input unread loses its answer."""
        self._refused = True
        self._input.clear()
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has gone
                self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def expire(self) -> None:
        """It has waited as long as it may: for a request, or for its client to read."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            if unsent >= self._unsent or self.transport.is_closing():
                self.transport.abort()
            self._unsent = unsent
        elif self._refused or self.transport.is_closing():
            self.transport.abort()
        elif self.conn.our_state is h11.SEND_RESPONSE or self.conn.trailing_data[0]:
            self.refuse(408, self._connections.limits.late_text)
        else:
            self.transport.close()
