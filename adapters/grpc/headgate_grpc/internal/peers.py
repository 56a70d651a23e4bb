"""The caller's side of calls between workers: a `Peers` that calls by gRPC if the other worker
serves it, and by HTTP otherwise. Incoming calls are taken from the HTTP `Peers`.
"""

import asyncio
import contextlib
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
from headgate_grpc.client.address import OPTIONS, has_tls
from headgate_grpc.internal.channels import Channels, Connection
from headgate_grpc.internal.service import METHOD, NO_KEY
from headgate_grpc.internal.signing import BOOT, metadata
from headgate_grpc.internal.v1.worker_service_pb2 import AskRequest, AskResponse

CONNECT_S: Final = 5.0
SLACK_S: Final = 5.0
"""How much longer than its time limit a call is waited for. gRPC itself ends it in time, unless
gRPC fails."""
CLOSE_S: Final = 5.0
"""How long `close` waits for calls under way, and for the loop."""
LAST_EVENTS_S: Final = 0.05
"""How long to wait before the loop is closed. gRPC delivers the ends of cancelled calls a moment
later, and logs errors if the loop is closed by then."""
LATE: Final = "{} did not answer within {} ms; it may still have acted"
ENDS: Final = "{} was being called when this worker ended; it may still have acted"
REFUSED: Final = grpc.StatusCode.UNAUTHENTICATED
"""The status code that proves that the call was not executed. RESOURCE_EXHAUSTED does not: the
answer to an executed call may be too large to receive."""


class GrpcPeers:
    """The peers port over gRPC. Several threads may use `call`.

    Args:
        inner: the peers port over HTTP.
        address: returns the gRPC address of the worker at a URL, ``host:port`` or
            ``grpcs://host:port``. Empty: that worker is called by HTTP.
        session_keys: returns the keys. The current one signs calls.
        credentials: for calls with TLS. With credentials, workers without TLS are called by HTTP.
            Without credentials, workers with TLS are.
    """

    def __init__(
        self,
        inner: Peers,
        address: Callable[[str], str],
        session_keys: Callable[[], KeyRing],
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._inner = inner
        self._address = address
        self._session_keys = session_keys
        self._channels = Channels(self._channel)
        """Connections to workers. They belong to the loop, as `_asking` does."""
        self._asking: set[asyncio.Task[bytes | None]] = set()
        self._lock = threading.Lock()
        self._closed = False
        """`close` has begun, so no call may be given to the loop. Guarded by the lock."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="grpc-calls", daemon=True
        )
        self._thread.start()
        self.calls = 0
        """Number of calls that were made by gRPC."""

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        address = self._address(url)
        if not address or has_tls(address) is (self._credentials is None):
            return self._inner.call(url, call, hops, timeout_ms, origin)
        key = self._session_keys().current
        if key is None:
            return Failure(ErrorKind.NOT_READY, NO_KEY)
        body = AskRequest(call_json=wire.dumps(call), hops=hops).SerializeToString()
        with self._lock:
            if self._closed:
                raise TransportError(f"{url} was not called: this worker ends")
            asking = self._ask(address, key.key, body, timeout_ms)
            asked = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            answer = asked.result(timeout_ms / 1000 + SLACK_S)
        except grpc.aio.AioRpcError as error:
            return self._failed(url, timeout_ms, error)
        except TimeoutError as error:
            asked.cancel()
            raise TransportError(LATE.format(url, timeout_ms)) from error
        except CancelledError:
            raise TransportError(ENDS.format(url)) from None
        except (grpc.aio.BaseError, RuntimeError) as error:
            # These are raised if the channel was closed meanwhile.
            text = f"{url} may have been called: {type(error).__name__}: {error}"
            raise TransportError(text) from error
        if answer is None:
            hint = "; are the certificates of both right?" if has_tls(address) else ""
            text = f"{url} could not be reached at {address} by gRPC{hint}"
            return Failure(ErrorKind.UNREACHABLE, text)
        result: Result = wire.loads(Success | Failure, AskResponse.FromString(answer).result_json)
        return result

    def _failed(self, url: str, timeout_ms: int, error: grpc.aio.AioRpcError) -> Result:
        """Return the result of a failed call that was surely not executed.

        Raises:
            TransportError: the call may have been executed.
        """
        code, details = error.code(), error.details() or ""
        if code is REFUSED:
            return Failure(ErrorKind.NOT_READY, f"{url}: {details}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TransportError(LATE.format(url, timeout_ms)) from error
        raise TransportError(
            f"{url} broke off before its answer ({code.name}: {details}); it may still have acted"
        ) from error

    async def _ask(self, address: str, key: bytes, body: bytes, timeout_ms: int) -> bytes | None:
        """Make a call and return its answer. None: there was no connection, so the call was surely
        not sent."""
        task: Any = asyncio.current_task()
        self._asking.add(task)
        try:
            return await self._answer_of(address, key, body, timeout_ms / 1000)
        finally:
            self._asking.discard(task)

    async def _answer_of(
        self, address: str, key: bytes, body: bytes, seconds: float
    ) -> bytes | None:
        until = self._loop.time() + seconds
        async with self._channels.use(address) as found:
            try:
                async with asyncio.timeout(min(seconds, CONNECT_S)):
                    await found.channel.channel_ready()
            except TimeoutError:
                return None
            self.calls += 1
            signed_for = found.boot
            try:
                return await self._asked(found, address, key, body, until)
            except grpc.aio.AioRpcError as error:
                boot = _boot_told(error)
                if boot is None or boot == signed_for:
                    raise
                # The callee was restarted. It has refused the call, and returned its new boot.
                found.boot = boot
            return await self._asked(found, address, key, body, until)

    async def _asked(
        self, found: Connection, address: str, key: bytes, body: bytes, until: float
    ) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        signed = metadata(key, METHOD, address, body, now_ms, found.boot)
        ask: Any = found.channel.unary_unary(METHOD)
        left_s = max(until - self._loop.time(), 0.001)
        answer: bytes = await ask(body, timeout=left_s, metadata=signed)
        return answer

    def _channel(self, address: str) -> grpc.aio.Channel:
        target = f"dns:///{address.removeprefix('grpcs://')}"
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=OPTIONS)
        return grpc.aio.secure_channel(target, self._credentials, options=OPTIONS)

    def incoming(self) -> Sequence[IncomingCall]:
        return self._inner.incoming()

    def answer(self, call_id: str, result: Result) -> None:
        self._inner.answer(call_id, result)

    def close(self) -> None:
        """End the calls under way. They raise TransportError in their threads, as later calls
        do."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        with contextlib.suppress(TimeoutError):
            closing.result(2 * CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close(self) -> None:
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking, timeout=CLOSE_S)
        await self._channels.close()
        if asking:
            await asyncio.sleep(LAST_EVENTS_S)


def _boot_told(error: grpc.aio.AioRpcError) -> bytes | None:
    """Return the `Verifier.boot` in a callee's refusal. None: the call failed for another
    reason."""
    if error.code() is not REFUSED:
        return None
    told = dict(error.trailing_metadata() or ()).get(BOOT)
    return told if isinstance(told, bytes) else None
