"""The caller's end: the `Peers` of a worker that calls by gRPC where the other one can, else by
HTTP. Calls that come in are taken where HTTP's are.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final

import grpc
import grpc.aio

from headgate import wire
from headgate.herder.messages import Call, ErrorKind, Failure, Result, Success
from headgate.herder.session_keys import KeyRing
from headgate.ports import IncomingCall, Peers, TransportError
from headgate_grpc.client.address import OPTIONS
from headgate_grpc.internal.service import METHOD, NO_KEY
from headgate_grpc.internal.signing import metadata
from headgate_grpc.internal.v1.worker_service_pb2 import AskRequest, AskResponse

CONNECT_S: Final = 5.0
CHANNELS_MAX: Final = 200
REFUSED: Final = grpc.StatusCode.UNAUTHENTICATED
"""The code by which surely nothing was done. RESOURCE_EXHAUSTED is none: an answer may be too large
to be taken, of a call that was done."""


class GrpcPeers:
    """`call` may be used by several threads.

    Args:
        inner: HTTP's.
        address: of a worker, by its url, ``host:port``; empty: it is called by HTTP.
        session_keys: the current one signs.
    """

    def __init__(
        self,
        inner: Peers,
        address: Callable[[str], str],
        session_keys: Callable[[], KeyRing],
    ) -> None:
        self._inner = inner
        self._address = address
        self._session_keys = session_keys
        self._channels: dict[str, grpc.aio.Channel] = {}
        """Belongs to the loop."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="grpc-calls", daemon=True
        )
        self._thread.start()
        self.calls = 0
        """Calls that went by gRPC."""

    def call(self, url: str, call: Call, hops: int, timeout_ms: int) -> Result:
        address = self._address(url)
        if not address:
            return self._inner.call(url, call, hops, timeout_ms)
        key = self._session_keys().current
        if key is None:
            return Failure(ErrorKind.NOT_READY, NO_KEY)
        body = AskRequest(call_json=wire.dumps(call), hops=hops).SerializeToString()
        asking = self._ask(address, key.key, body, timeout_ms)
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        except grpc.aio.AioRpcError as error:
            return self._failed(url, timeout_ms, error)
        except CancelledError:
            raise TransportError(f"{url} was being called when this worker ended") from None
        if answer is None:
            text = f"{url} could not be reached at {address} by gRPC"
            return Failure(ErrorKind.UNREACHABLE, text)
        result: Result = wire.loads(Success | Failure, AskResponse.FromString(answer).result_json)
        return result

    def _failed(self, url: str, timeout_ms: int, error: grpc.aio.AioRpcError) -> Result:
        """Raises TransportError: it may have been done."""
        code, details = error.code(), error.details() or ""
        if code is REFUSED:
            return Failure(ErrorKind.NOT_READY, f"{url}: {details}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may still have acted"
            ) from error
        raise TransportError(
            f"{url} broke off before its answer ({code.name}: {details}); it may still have acted"
        ) from error

    async def _ask(self, address: str, key: bytes, body: bytes, timeout_ms: int) -> bytes | None:
        """The answer; None: there was no connection, so that surely nothing was asked."""
        seconds = timeout_ms / 1000
        until = self._loop.time() + seconds
        channel = await self._channel(address)
        try:
            async with asyncio.timeout(min(seconds, CONNECT_S)):
                await channel.channel_ready()
        except TimeoutError:
            return None
        self.calls += 1
        signed = metadata(key, METHOD, address, body, time.time_ns() // 1_000_000)
        ask: Any = channel.unary_unary(METHOD)
        left_s = max(until - self._loop.time(), 0.001)
        answer: bytes = await ask(body, timeout=left_s, metadata=signed)
        return answer

    async def _channel(self, address: str) -> grpc.aio.Channel:
        found = self._channels.get(address)
        if found is None:
            if len(self._channels) >= CHANNELS_MAX:
                # Workers that are gone. A call under way there ends as if it had broken off.
                await self._channels.pop(next(iter(self._channels))).close()
            found = grpc.aio.insecure_channel(f"dns:///{address}", options=OPTIONS)
            self._channels[address] = found
        return found

    def incoming(self) -> Sequence[IncomingCall]:
        return self._inner.incoming()

    def answer(self, call_id: str, result: Result) -> None:
        self._inner.answer(call_id, result)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()
