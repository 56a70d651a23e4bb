"""The gRPC server: both services, health and reflection, on one event loop on a thread of its own.

Tasks run in processes that `subprocess` starts, which runs no code of gRPC between fork and exec. A
process that loads this module must not start tasks by `os.fork`.
"""

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf import message, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from headgate.herder.messages import ErrorKind
from headgate_grpc.asked import Asked
from headgate_grpc.backend import Backend
from headgate_grpc.cluster import ClusterService
from headgate_grpc.cluster_watch import ClusterHub
from headgate_grpc.connectors import ConnectorService
from headgate_grpc.errors import MEANINGS, RefusedError, bad_request
from headgate_grpc.listeners import KEY, Listener, ListenError
from headgate_grpc.reflection import Reflection
from headgate_grpc.tls import CERTIFICATE_KEY, Tls
from headgate_grpc.unix_socket import target_of
from headgate_grpc.v1 import cluster_service_pb2, connector_service_pb2
from headgate_grpc.watch import Hub

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

MESSAGE_MAX: Final = 64 * 1024 * 1024
METADATA_MAX: Final = 8 * 1024
STREAMS_MAX: Final = 2_000
"""Most concurrent calls on one connection."""
IDLE_MS: Final = 300_000
"""How long a connection without a call is kept."""
HANDSHAKE_MS: Final = 20_000
"""Time limit for a new connection to complete the handshakes of TLS and HTTP/2."""
GRACE_S: Final = 1.0
START_S: Final = 30.0
OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    ("grpc.max_metadata_size", METADATA_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # These notice a client that is gone without closing, so that its watches end.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC applies this timeout to every ping. Its default is a minute.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)
SERVICES: Final[tuple[ServiceDescriptor, ...]] = (
    connector_service_pb2.DESCRIPTOR.services_by_name["ConnectorService"],
    cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"],
)
SOCKET_MODE: Final = 0o600


class GrpcServer:
    """The server. From `start` on it answers UNAVAILABLE, and calls once the backend is ready."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        backend: Backend,
        tls: Tls | None = None,
        more: Sequence[grpc.GenericRpcHandler] = (),
    ) -> None:
        """
        Args:
            tls: certificates, for listeners with TLS.
            more: handlers of services beside the public ones.
        """
        self._more = tuple(more)
        self._listeners = tuple(listeners)
        self._tls = tls
        self._backend = backend
        self._begun = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._health: health.aio.HealthServicer | None = None
        self.hub: Hub | None = None
        """The watches of connectors. It belongs to the server's loop."""
        self.bound: tuple[Listener, ...] = ()
        """The open listeners, with the ports that were chosen. Known after `start`."""

    def start(self) -> None:
        """Start the thread and wait until the server listens.

        Raises:
            ListenError: a listener cannot be opened.
        """
        self._thread.start()
        if not self._begun.wait(START_S):
            raise ListenError(f"the gRPC server has not started within {START_S:g} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        log.info("gRPC server listens at %s", ", ".join(map(str, self.bound)))

    def ready(self) -> None:
        """Set health to SERVING, because the backend now answers."""
        self._soon(self._tell_serving)

    def stopping(self) -> None:
        """Set health to NOT_SERVING for good, so that no new clients come, because the backend is
        about to end. Calls and watches go on until `close`."""
        self._soon(self._tell_stopping)

    def _soon(self, tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._loop is not None and self._health is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                asyncio.run_coroutine_threadsafe(tell(), self._loop)

    def close(self) -> None:
        """End the server. Watches end with UNAVAILABLE. Calls under way may take `GRACE_S` more."""
        if self._loop is None or self._end is None:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(GRACE_S + 5)

    # -- on the thread --

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._failure = error
            if self._begun.is_set():
                log.exception("the gRPC server has failed")
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_on_loop_error)
        hub = self.hub = Hub(self._backend)
        server = grpc.aio.server(options=OPTIONS)
        cluster_hub = ClusterHub(self._backend)
        answers = (ConnectorService(hub), ClusterService(cluster_hub))
        for service, answered_by in zip(SERVICES, answers, strict=True):
            server.add_generic_rpc_handlers((self._handler(service, answered_by),))
        server.add_generic_rpc_handlers(self._more)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*(service.full_name for service in SERVICES), health.SERVICE_NAME)
        server.add_generic_rpc_handlers((Reflection(names),))
        for name in ("", *(service.full_name for service in SERVICES)):
            await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        if self._backend.ready:
            await self._tell_serving()
        with contextlib.ExitStack() as stack:
            self.bound = tuple(_bind(server, each, self._tls, stack) for each in self._listeners)
            await server.start()
            for listener in self.bound:
                if listener.path is not None:
                    stack.callback(listener.path.unlink, missing_ok=True)
            self._begun.set()
            await self._end.wait()
            await self._tell_stopping()
            hub.close()
            await cluster_hub.close()
            await server.stop(GRACE_S)

    async def _tell_serving(self) -> None:
        assert self._health is not None
        for name in ("", *(service.full_name for service in SERVICES)):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def _tell_stopping(self) -> None:
        assert self._health is not None
        await self._health.enter_graceful_shutdown()

    # -- calls --

    def _handler(self, service: ServiceDescriptor, answered_by: object) -> grpc.GenericRpcHandler:
        """Make the handler of a service. It parses requests itself: gRPC would answer UNKNOWN to
        bytes that are not the expected message."""
        handlers: dict[str, Any] = {
            method.name: (
                grpc.unary_stream_rpc_method_handler(self._streamed(method, answered_by))
                if method.server_streaming
                else grpc.unary_unary_rpc_method_handler(self._answered(method, answered_by))
            )
            for method in service.methods
        }
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _answered(
        self, method: MethodDescriptor, answered_by: object
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        behaviour = getattr(answered_by, snake_case(method.name))
        kind = message_factory.GetMessageClass(method.input_type)

        async def answered(body: bytes, context: Context) -> bytes:
            try:
                request = _parsed(kind, body)
                response = await behaviour(request, Asked(self._backend, context))
                return bytes(response.SerializeToString())
            except RefusedError as refusal:
                return await _abort(context, refusal)
            except Exception as error:
                return await _abort(context, _failed(method, error))

        return answered

    def _streamed(
        self, method: MethodDescriptor, answered_by: object
    ) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
        behaviour = getattr(answered_by, snake_case(method.name))
        kind = message_factory.GetMessageClass(method.input_type)

        async def streamed(body: bytes, context: Context) -> AsyncIterator[bytes]:
            try:
                request, asked = _parsed(kind, body), Asked(self._backend, context)
                asked.check_ready()
                async with contextlib.aclosing(behaviour(request, asked)) as responses:
                    async for response in responses:
                        sent = response.SerializeToString()
                        # The message is larger than its bytes, and a slow client may take long.
                        del response
                        yield sent
            except RefusedError as refusal:
                await _abort(context, refusal)
            except Exception as error:
                await _abort(context, _failed(method, error))

        return streamed


def snake_case(name: str) -> str:
    """Return ``list_connectors`` for ``ListConnectors``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _parsed(kind: type[message.Message], body: bytes) -> message.Message:
    try:
        return kind.FromString(body)
    except message.DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise bad_request(f"the request is no {name}, or a text in it is not UTF-8") from None


def _failed(method: MethodDescriptor, error: Exception) -> RefusedError:
    """Log an unexpected exception with its trace. Return the error for the client, which has only
    the exception's class."""
    log.error("%s", method.full_name, exc_info=error)
    text = f"{method.name} has failed: {type(error).__name__}; the worker's log says why"
    return RefusedError(MEANINGS[ErrorKind.INTERNAL], text)


async def _abort(context: Context, refusal: RefusedError) -> bytes:
    await context.abort(refusal.meaning.code, refusal.message, refusal.trailers)
    raise AssertionError("abort raises")


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug("gRPC server: %s", context.get("message"), exc_info=context.get("exception"))


# -- listening --


def _bind(
    server: grpc.aio.Server, listener: Listener, tls: Tls | None, stack: contextlib.ExitStack
) -> Listener:
    """Open a listener. Return it, with the port that was chosen.

    Raises:
        ListenError: it cannot be opened.
    """
    try:
        if listener.path is not None:
            _bind_socket(server, listener.path, stack)
            return listener
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        address = f"{host}:{listener.port}"
        if not listener.tls:
            port = server.add_insecure_port(address)
        elif tls is None:
            raise OSError(0, f"{CERTIFICATE_KEY} is not set")
        else:
            port = server.add_secure_port(address, tls.credentials())
    except (RuntimeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ListenError(f"{KEY}: cannot listen at {listener}: {reason}") from None
    if port == 0:
        raise ListenError(f"{KEY}: cannot listen at {listener}")
    return replace(listener, port=port)


def _bind_socket(server: grpc.aio.Server, path: Path, stack: contextlib.ExitStack) -> None:
    """Open a Unix socket that other users cannot reach at any time. It is created in a private
    folder, gets its mode there, and is moved to its place."""
    if path.exists() and not path.is_socket():
        raise OSError(0, "there is a file that is no socket")
    folder = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix=".grpc-", dir=path.parent))
    )
    draft = folder / "s"
    target = stack.enter_context(target_of(draft))
    server.add_insecure_port(target)
    draft.chmod(SOCKET_MODE)
    draft.replace(path)
