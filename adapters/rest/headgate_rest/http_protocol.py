"""HTTP/1.1 on one connection, bounded: uvicorn's protocol, with limits of time and of CPU.

What uvicorn lacks: a time-out for requests that do not end, 431 and 408, turns for bodies that cost
much to read, an end to clients that do not read their answers.
"""

import asyncio
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

log = logging.getLogger(__name__)
log.addFilter(SeldomLog())

PIECE: Final = 4_096
"""Bytes that are read at once; in chunks of one byte they cost some milliseconds."""
TURN_S: Final = 0.01
"""How long the loop reads bodies before it does something else."""
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
        self.logger = log
        self._connections = connections
        self._turns = turns
        self._entry: Connection | None = None
        self._input = bytearray()
        self._queued = False
        self._refused = False
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
        piece = bytes(self._input[:PIECE])
        del self._input[:PIECE]
        super().data_received(piece)
        if self._input and not self.flow.read_paused:
            self.transport.pause_reading()
            self._queue()
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def handle_events(self) -> None:
        super().handle_events()
        self._say_state()

    def on_response_complete(self) -> None:
        self._working = False
        if self._entry is not None:
            self._entry.served = True
            self._connections.waits(self._entry)
        self._unsent = self.transport.get_write_buffer_size()
        if self.conn.their_state is h11.SEND_BODY:  # refused early: what still comes is dropped
            self.loop.call_later(LINGER_S, self._end_unread_body, self.cycle)
        super().on_response_complete()

    def _say_state(self) -> None:
        cycle = self.cycle
        working = cycle is not None and not cycle.response_complete and not cycle.more_body
        if working and not self._working and self._entry is not None:
            self._connections.works(self._entry)
        self._working = working

    def _end_unread_body(self, cycle: object) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

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
        self._refused = True
        self._input.clear()
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
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # A socket that is closed with input unread loses what was written.
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
            ms = self._connections.limits.read_timeout_ms
            self.refuse(
                408,
                f"The request was not complete within {ms} ms (headgate.rest.read.timeout.ms)",
            )
        else:
            self.transport.close()
