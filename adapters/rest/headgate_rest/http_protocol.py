"""HTTP/1.1 on one connection: uvicorn's protocol, with limits of time and CPU.

It adds what uvicorn lacks: a timeout for requests that do not end, the statuses 431 and 408, turns
for bodies that are expensive to read, and an end to clients that do not read their answers.
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
"""Bytes that are read at once. In chunks of one byte they take some milliseconds."""
LARGE_PIECE: Final = 65_536
"""Bytes that are read at once of a body that is not chunked, which is cheap to read."""
TURN_S: Final = 0.005
"""How long the loop reads bodies before it does something else."""
FRAMING_MAX: Final = 3
"""Limit of the ratio of bytes sent for a chunked body to bytes of the body, beyond `FRAMING_FREE`
bytes. Chunks of one byte cost more to read than to send."""
FRAMING_FREE: Final = 8_192
"""Bytes that may be sent for a chunked body without regard to `FRAMING_MAX`."""
LINGER_S: Final = 2.0
"""How long a client that was refused may go on sending, so that it reads the answer."""


class Turns:
    """The protocols with unread input. They are served in turn, for `TURN_S` in each turn of the
    loop."""

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
    """uvicorn's flow control, which resumes reading only after all earlier input was used."""

    def __init__(self, transport: asyncio.Transport, protocol: "BoundedProtocol") -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._protocol.read_on()


class BoundedProtocol(H11Protocol):
    """One connection. It tells `Connections` when it waits for a request, which ends it if that
    takes too long."""

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
        """A refusal was sent. Further input is dropped, and the connection ends soon."""
        self._sent_for_body = 0
        self._working = False
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._entry = self._connections.of(transport.get_extra_info("socket").fileno())
        if self._entry is None:  # the connection was closed before its protocol began
            transport.abort()
            return
        self._entry.end, self._entry.expire = transport.abort, self.expire
        self.app_state = {**self.app_state, "connection": self._entry}

    def connection_lost(self, exc: Exception | None) -> None:
        self._input.clear()
        super().connection_lost(exc)
        # These refer back to this protocol, so the body would stay until the next garbage
        # collection.
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
        else:  # at once, so that short requests do not wait for long bodies
            self.take_piece()

    def read_on(self) -> None:
        """Go on reading, after the application has allowed it."""
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
        if self.conn.their_state is h11.SEND_BODY:  # the request was answered before its end
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
        """Refuse a request that h11 cannot read. uvicorn calls this while it handles h11's error,
        whose hint may be another status than 400."""
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
        """Answer without calling the application, and close the connection."""
        if self._refused:
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer has begun, so no other can be sent
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
        """Close the connection after `LINGER_S`. If a socket is closed with unread input, its
        client loses the answer."""
        self._refused = True
        self._input.clear()
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has gone
                self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def expire(self) -> None:
        """End the connection, which has waited too long for a request, or for its client to read.
        A client that has read some of its answer meanwhile gets more time."""
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
