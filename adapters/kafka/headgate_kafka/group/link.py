"""Connections of kafka-python that carry the group's requests to its coordinator.

This module uses internals of kafka-python: its connection manager, and its event loop on a thread
of its own. So the installed version is checked. (`raw_client` also uses internals.)

kafka-python's `BaseCoordinator` is not used. It would be a second state machine of the membership
beside `headgate.membership.member`, with a clock and retries of its own, and the two would fight.
"""

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from headgate_kafka.admin.refusals import LOGIN_HINT, TOKEN_HINT, tls_refusal
from headgate_kafka.login.principal import of_kafka_python

KAFKA_PYTHON: Final = "3.0.12"
ANSWER_BYTES_MAX: Final = 2**30
"""Size limit of a response. A leader is sent the metadata of every member, and kafka-python's own
limit is a million bytes."""
REQUEST_MS: Final = 10_000
_LOGGER: Final = logging.getLogger("kafka.net")
_RECONNECT_MS_MAX: Final = 1_000
"""Java's default of ``reconnect.backoff.max.ms``; kafka-python's is 30 s."""


class CodeError(Exception):
    """The broker answered a request with an error code."""

    def __init__(self, operation: str, code: int, message: str | None = None) -> None:
        self.operation = operation
        self.code = code
        self.name = error_name(code)
        super().__init__(f"{self.name} ({message})" if message else self.name)


class NotLetInError(Exception):
    """A broker refuses the login or the client's certificate, or its own certificate is refused
    here. Waiting does not help. The message says what to do."""


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connections, changed so that the last bytes of a connection are read before
    it ends. A broker that refuses a password answers and closes at once."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv

        def receive_whole() -> tuple[bytes, Exception | None]:
            data, error = receive()
            # The next read sees the end of the connection again.
            return (data, None) if data else (data, error)

        transport._sock_recv = receive_whole
        return transport


@dataclass(frozen=True, slots=True)
class Coordinator:
    """A group's coordinator and the two connections to it.

    A broker reads no further request from a connection until it has answered the last one, and it
    may hold a join for a minute. So heartbeats have a connection of their own.
    """

    address: str
    waiting: str
    """Node id of the connection for joins and syncs."""
    quick: int
    """Node id of the connection for all other requests."""


def error_name(code: int) -> str:
    """Return the name of an error code in Kafka's protocol."""
    return str(getattr(for_code(code), "message", None) or f"error {code}")


def check_version() -> None:
    """Raise RuntimeError unless kafka-python has the version that this module was written for."""
    found = version("kafka-python")
    if found != KAFKA_PYTHON:
        raise RuntimeError(
            f"kafka-python {found} is installed, and groups on Kafka need exactly {KAFKA_PYTHON}, "
            f"whose connections they use: pip install kafka-python=={KAFKA_PYTHON}"
        )


class Link:
    """One event loop on a thread of its own, and its connections.

    Coroutines given to `spawn` and `call` run on that thread, one step at a time. They share state
    without locks and must not block.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Start the thread without connecting yet.

        Args:
            settings: kafka-python's arguments (`clients.settings.kafka_python`).
        """
        if _LOGGER.level == logging.NOTSET:
            # kafka-python logs every failed attempt as an error. Here the caller gets the failure.
            _LOGGER.setLevel(logging.CRITICAL)
        self.servers = ",".join(settings.get("bootstrap_servers", ())) or "no bootstrap servers"
        self._login = of_kafka_python(settings) if settings.get("sasl_mechanism") else ""
        client_id = settings.get("client_id", "headgate")
        self._net: Any = NetworkSelector(client_id=client_id)
        self._manager: Any = _Manager(
            self._net,
            **{
                "client_id": client_id,
                "reconnect_backoff_max_ms": _RECONNECT_MS_MAX,
                **settings,
                "receive_message_max_bytes": ANSWER_BYTES_MAX,
            },
        )
        self._bootstraps = 0
        self._net.start()

    def spawn(self, function: Callable[..., Any], *args: Any) -> None:
        """Run `function` soon on the link's thread, and do not wait for it. From any thread.

        Raises:
            OSError: the link's thread has ended.
        """
        try:
            self._manager.call_soon(function, *args)
        except (RuntimeError, KafkaError) as error:
            raise OSError(f"the connections' thread has ended: {error}") from error

    def call(self, function: Callable[..., Awaitable[Any]], *args: Any, timeout_ms: int) -> Any:
        """Run `function` on the link's thread and return its result. Not from the link's thread.

        Raises:
            TimeoutError: it did not finish within `timeout_ms`.
            Exception: whatever `function` raises.
        """
        done = threading.Event()
        future = self._manager.call_soon(function, *args)
        future.add_both(lambda _: done.set())
        if not done.wait(timeout_ms / 1000):
            raise TimeoutError(f"no answer from {self.servers} within {timeout_ms} ms")
        if future.exception is not None:
            raise future.exception
        return future.value

    async def sleep(self, seconds: float) -> None:
        await self._net.sleep(seconds)

    async def ask(self, node: str | int, request: Any, timeout_ms: int = REQUEST_MS) -> Any:
        """Send one request and return the response. After the timeout the connection is closed.

        Raises:
            NotLetInError: the broker refuses this client, or this client refuses the broker.
            KafkaError, OSError: there is no connection, or it ended before the response came.
        """
        connection = await self._connected(node)
        return await connection.send_request(request, request_timeout_ms=timeout_ms)

    async def _connected(self, node: str | int) -> Any:
        try:
            connection = self._manager.get_connection(node, refresh_metadata_on_err=False)
            await connection
        except (SaslAuthenticationFailedError, UnsupportedSaslMechanismError) as error:
            text = str(error)
            text = text if TOKEN_HINT in text else f"{text}; {LOGIN_HINT}"
            raise NotLetInError(text) from error
        except KafkaConnectionError as error:
            if refusal := tls_refusal(str(error)):
                raise NotLetInError(refusal) from error
            if self._login and "disconnected" in str(error):
                raise KafkaConnectionError(
                    f"the connection ended while {self._login} logged in"
                ) from error
            raise
        return connection

    async def find(self, group: str) -> Coordinator:
        """Ask any broker for the group's coordinator.

        Raises:
            CodeError: it is not available, or this client may not describe the group.
            NotLetInError: a broker refuses this client.
            KafkaError, OSError: no broker answers.
        """
        node = self._manager.least_loaded_node()
        if node is None or not self._manager.cluster.brokers():
            await self._bootstrap()
            node = self._manager.least_loaded_node()
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        try:
            response = await self.ask(node, request)
        except (KafkaError, OSError):
            # The brokers may all have moved, so start again from ``bootstrap.servers``.
            await self._bootstrap()
            raise
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise CodeError("FindCoordinator", found.error_code, found.error_message)
        add = self._manager.cluster.add_coordinator
        return Coordinator(
            address=f"{found.host}:{found.port}",
            waiting=add(found, CoordinatorType.GROUP, group),
            quick=add(found, CoordinatorType.GROUP, group, synthesize_node_id=False),
        )

    async def _bootstrap(self) -> None:
        """Fetch the list of brokers from the next address of ``bootstrap.servers``."""
        brokers = self._manager.cluster.bootstrap_brokers()
        node = brokers[self._bootstraps % len(brokers)].node_id
        self._bootstraps += 1
        await self._connected(node)
        await self._manager.cluster.refresh_metadata(node)
        if not self._manager.cluster.brokers():
            raise NodeNotReadyError("the broker names no brokers yet")

    def drop(self, node: str | int) -> None:
        """Close a node's connection, and forget its pending requests and that its login was
        refused. On the link's thread."""
        self._manager._auth_failures.pop(node, None)
        connection = self._manager._conns.pop(node, None)
        if connection is not None:
            connection.close()

    def drop_all(self) -> None:
        for node in list(self._manager._conns):
            self.drop(node)
        self._manager._auth_failures.clear()

    def close(self) -> None:
        try:
            self._net.run(self._manager.close)
        except (RuntimeError, KafkaError):
            return  # its thread has ended
        self._net.close()
