"""An admin client that repeats requests while brokers are away."""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headgate.ports import RefusedError, TransportError
from headgate_kafka.admin.controller import look_again, took_too_long
from headgate_kafka.clients.names import check_names
from headgate_kafka.failures import Contact
from headgate_kafka.login.principal import of_librdkafka
from headgate_kafka.login.token_trial import try_for_token

Warn: TypeAlias = Callable[[str], None]

API_TIMEOUT_MS = 60_000
"""Java's default of ``default.api.timeout.ms``: how long a worker tries before it ends."""
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.05, 5.0
REQUEST_S = 5.0
_RETRIABLE = frozenset(
    {
        *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN),
        KafkaError._AUTHENTICATION,
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER),
        *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.INVALID_REPLICATION_FACTOR),
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.BROKER_NOT_AVAILABLE),
    }
)
_UNREACHED = (
    "Failed to connect to and describe Kafka cluster. Check worker's broker connection and "
    "security properties"
)


class Admin:
    """confluent-kafka's admin client with retries. A request that fails because brokers are away is
    repeated until `timeout_ms` is over."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        timeout_ms: int = API_TIMEOUT_MS,
        warn: Warn,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """
        Args:
            settings: librdkafka's settings.
            sleep: waits. It may raise, to end the retries.
        """
        # The client's log lines are part of the failure's message, and not warnings of their own.
        self._contact = Contact(settings, warn=lambda _line: None)
        self.servers = self._contact.servers
        self.principal = of_librdkafka(settings)
        self._warn = warn
        self._timeout_s = timeout_ms / 1000
        self._sleep = sleep
        self._has_asked = False

    @cached_property
    def client(self) -> AdminClient:
        return AdminClient(self._contact.settings)

    def cluster(self) -> tuple[str, int]:
        """Return the cluster id and the number of brokers that are up. A worker also finds out so
        whether any broker answers. Source: ConnectUtils.kafkaClusterId.

        Raises:
            RefusedError: the brokers refuse this client's login, or it gets no token for it.
            TransportError: no broker answered in time, or no host in ``bootstrap.servers`` has an
                address. The message says which servers were asked and how they failed.
        """
        if not self._has_asked:
            check_names(self.servers)
            self._await_token()
            self._has_asked = True
        found = self.patiently(_UNREACHED, self._described)
        return str(found.cluster_id), len(found.nodes)

    def _await_token(self) -> None:
        patience = self._patience(_UNREACHED)
        while True:
            try:
                return try_for_token(self._contact.settings)
            except RefusedError as error:
                raise RefusedError(f"{_UNREACHED} at {self.servers}: {error}") from None
            except TransportError as error:
                patience.wait(str(error))

    def patiently(
        self,
        what: str,
        ask: Callable[[float], Any],
        *,
        quiet: bool = False,
        too_few_brokers: str = "",
    ) -> Any:
        """Return the result of `ask`, which is repeated while brokers are away.

        Args:
            what: the beginning of an error message.
            ask: makes the request, given its time limit in seconds.
            quiet: do not warn while waiting.
            too_few_brokers: text for the message if there are, and remain, fewer brokers than the
                replication factor.

        Raises:
            RefusedError: the brokers refuse this client's login. Waiting does not help.
            TransportError: it did not succeed in time.
            KafkaException: another error for which waiting does not help.
        """
        patience = self._patience(what, quiet=quiet)
        while True:
            try:
                return ask(max(1.0, min(REQUEST_S, patience.left_s)))
            except KafkaException as error:
                self.client.poll(0)
                kafka_error = error.args[0]
                if kafka_error.code() not in _RETRIABLE:
                    raise
                if self._contact.refusal:
                    raise self._contact.error(what) from None
                if took_too_long(error):
                    look_again(self.client)
                heard = self._contact.complaint, self._contact.silence
                reason = "; ".join(filter(None, heard)) or kafka_error.str()
                if kafka_error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    # Brokers may still be joining.
                    reason = kafka_error.str().rstrip(".") + too_few_brokers
            patience.wait(reason)

    def _patience(self, what: str, *, quiet: bool = False) -> "_Patience":
        warn = _warn_nobody if quiet else self._warn
        return _Patience(what, self.servers, self._timeout_s, warn, self._sleep)

    def _described(self, limit_s: float) -> Any:
        asked = self.client.describe_cluster(request_timeout=limit_s)
        return self._contact.answer(self.client, asked)


class _Patience:
    """The growing pauses between the tries of one request, until a deadline."""

    def __init__(
        self,
        what: str,
        servers: str,
        timeout_s: float,
        warn: Warn,
        sleep: Callable[[float], object],
    ) -> None:
        self._what = what
        self._servers = servers
        self._timeout_s = timeout_s
        self._warn: Warn | None = warn
        self._sleep = sleep
        self._deadline = time.monotonic() + timeout_s
        self._backoff_s = BACKOFF_S_MIN

    @property
    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def wait(self, reason: str) -> None:
        """Wait before the next try. The first time, warn with the reason.

        Raises:
            TransportError: the deadline has passed.
        """
        left_s = self.left_s
        if left_s <= 0:
            raise TransportError(
                f"{self._what}. Gave up after {self._timeout_s:g} s at {self._servers}: {reason}"
            )
        if self._warn is not None:
            self._warn(
                f"{self._what} ({self._servers}): {reason.rstrip('.')}; trying for {left_s:.0f} s "
                "more"
            )
            self._warn = None
        self._sleep(min(self._backoff_s, left_s))
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_S_MAX)


def _warn_nobody(_line: str) -> None:
    pass
