"""Translation of errors of Kafka's clients into exceptions of the ports. The other modules of this
package raise the exceptions that these functions make.

A fenced producer may see any of several error codes: librdkafka's own ``_FENCED``, or one of the
broker's. Every later call to that client gives ``_FATAL``, in an error whose `fatal()` is False.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.ports import RefusedError, TooLargeError, TransportError
from headgate_kafka.admin.refusals import refusal
from headgate_kafka.clients.log import client_logger
from headgate_kafka.login.principal import of_librdkafka

FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
REBALANCED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)
UNKNOWN_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
NO_RIGHT: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_KINDS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: " on Topic:",
    KafkaError.GROUP_AUTHORIZATION_FAILED: " on Group:",
}
UNDELIVERED: Final = frozenset(
    {
        *(KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE),
        *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._ISR_INSUFF),
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION),
        *(KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        *(KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        *(KafkaError.NOT_COORDINATOR, KafkaError.KAFKA_STORAGE_ERROR),
        # A commit fails so if records were never sent: too old, or their partition is unknown.
        KafkaError._INCONSISTENT,
        # After long idleness the coordinator has forgotten the transactional id, or a partition
        # has forgotten its producer.
        *(KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID),
        KafkaError.TRANSACTION_ABORTABLE,
    }
)
"""Errors by which a commit of a transaction fails although no broker refused one of its records."""
ABOUT_SIZE: Final = (
    "a record may have as many bytes as max.message.bytes of the topic and max.request.size of the "
    "producer say, 1 MiB by default"
)
SILENT: Final = "the other side closes each connection before it answers"
REASON_S: Final = 5.0
"""How long to wait for a client to report an error that it already has. On a busy machine its own
thread runs late."""
_LOOK_S: Final = 0.02
_CLOSED: Final = "Disconnected: "
"""Prefix of librdkafka's message about a connection that the other side accepted and then
closed."""
_HEARD_MS: Final = 60_000
"""How long the last message that a client logged counts as the reason of a failure."""


class Contact:
    """The brokers that one client talks to, and the last error that the client logged."""

    def __init__(self, settings: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self.servers = str(settings.get("bootstrap.servers", ""))
        self._given = dict(settings)
        self._warn = warn
        self._last = ""
        self._last_at = 0.0
        self._refusal = ""
        self._down_at = -_HEARD_MS / 1000

    @property
    def refusal(self) -> str:
        """Why the brokers refuse this client's login, if that is the last error it logged, within
        the last minute. Otherwise empty."""
        return self._refusal if self._recently() else ""

    @property
    def complaint(self) -> str:
        """The last message that the client logged, if it is less than a minute old. Otherwise
        empty."""
        return self._last if self._recently() else ""

    @property
    def principal(self) -> str:
        """The principal as which brokers see this client, as far as its settings tell."""
        return of_librdkafka(self._given)

    @property
    def silence(self) -> str:
        """A hint at what is wrong if brokers accept connections but never answer. Otherwise empty.

        librdkafka does not log that case, or says only that the connection was closed.
        """
        if self._recently():
            if _CLOSED not in self._last:
                return ""
        elif time.monotonic() - self._down_at >= _HEARD_MS / 1000:
            return ""
        protocol = str(self._given.get("security.protocol", "plaintext")).upper()
        return f"{SILENT}; check security.protocol, here {protocol}, and the port"

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's settings, with callbacks that report errors and log lines to this contact.

        The callbacks only note errors and decide nothing, because in a transactional producer they
        may run while another error is pending.
        """
        return {
            **self._given,
            "error_cb": self._on_error,
            "logger": client_logger(self._heard),
        }

    def answer(self, client: Any, asked: "Future[Any]") -> Any:
        """Return the answer to a request of an admin client. Fail as soon as a broker refuses the
        client: librdkafka itself would go on trying until the request's timeout.

        Raises:
            KafkaException: the answer is an error, or there is none and `refusal` says why.
        """
        while True:
            try:
                return asked.result(_LOOK_S)
            except TimeoutError:
                client.poll(0)
                if self.refusal:
                    raise KafkaException(KafkaError(KafkaError._AUTHENTICATION)) from None

    def error(
        self, what: str, error: KafkaError | None = None, *, right: str = ""
    ) -> TransportError:
        """Return an exception that says `what` failed, at which servers, and why: librdkafka's
        reason and the last error that the client logged. If the brokers refuse the client's login
        it is a RefusedError.

        Args:
            right: the permission that the operation needs (``Read on Topic:t``). The message names
                it if the error says that a permission is missing.
        """
        if self.refusal:
            return RefusedError(f"{what} at {self.servers}: {self.refusal}")
        parts = [] if error is None else [f"{error.str()} ({error.name()})"]
        if self.complaint:
            parts.append(self.complaint)
        if error is None or error.code() == KafkaError._TIMED_OUT:
            parts.append(self.silence)
        if error is not None and error.code() in NO_RIGHT:
            parts.append(self.lacking(error, right))
        reason = "; ".join(dict.fromkeys(filter(None, parts))) or "no answer in time"
        return TransportError(f"{what} at {self.servers}: {reason}")

    def write_error(self, what: str, error: KafkaError | None, *, right: str) -> TransportError:
        """As `error`, for a write to a topic. If a record is too large it is a TooLargeError."""
        found = self.error(what, error, right=right)
        too_large = error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        return TooLargeError(f"{found}; {ABOUT_SIZE}") if too_large else found

    def lacking(self, error: KafkaError, right: str = "") -> str:
        """Say which principal lacks which permission, after an error of `NO_RIGHT`.

        Args:
            right: the permission, used if it is of the error's kind of resource. Otherwise the
                permission is told from the error and the client's settings.
        """
        if (kind := _KINDS.get(error.code())) is None or kind not in right:
            right = _right(self._given, error)
        return f"{self.principal} lacks {right}"

    def task_error(self, what: str, error: KafkaError | None = None) -> TransportError:
        """As `error`, for a client of a task. A missing permission is a RefusedError, which fails
        the task, as in Connect. A worker waits instead: an operator may be about to grant it."""
        found = self.error(what, error)
        lasting = error is not None and error.code() in NO_RIGHT
        return RefusedError(str(found)) if lasting else found

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_at = time.monotonic()
        else:
            self._note(error.str())
            self._refusal = refusal(error)

    def _heard(self, line: str) -> None:
        self._note(line)
        self._warn(line)

    def _recently(self) -> bool:
        return time.monotonic() - self._last_at < _HEARD_MS / 1000

    def _note(self, text: str) -> None:
        self._last, self._last_at = text, time.monotonic()


def _right(settings: Mapping[str, Any], error: KafkaError) -> str:
    """Return the permission that a client with these settings lacks, for the error's kind of
    resource."""
    code = error.code()
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return f"Read on Group:{settings.get('group.id', '')}"
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f"Write on TransactionalId:{settings.get('transactional.id', '')}"
    if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return "a right on the Cluster"
    return "Read on that topic" if "group.id" in settings else "a right on that topic"


def kafka_error(error: BaseException) -> KafkaError | None:
    """Return the KafkaError inside an exception that a client raised. None: it has none.

    If a callback runs while a fatal error is pending, the client raises a SystemError whose cause
    is that error.
    """
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, KafkaException) and error.args:
        found = error.args[0]
        return found if isinstance(found, KafkaError) else None
    return None


def is_fenced(error: KafkaError) -> bool:
    return error.code() in FENCED


def real_error(client: Producer, error: KafkaError | None) -> KafkaError | None:
    """Return the error behind ``_FATAL``, or `error` itself if it is another one or none is found.

    After a fatal error librdkafka answers every call with ``_FATAL``. A commit, which is no longer
    possible, reports the original error. Sometimes the commit reports a timeout instead, because
    the event of the error was not served yet. Then `poll` raises it.
    """
    if error is None or error.code() != KafkaError._FATAL:
        return error
    for ask, wait_s in (
        (client.commit_transaction, REASON_S),
        (client.poll, 0.0),
        (client.commit_transaction, REASON_S),
    ):
        try:
            ask(wait_s)
        except (KafkaException, SystemError) as failed:
            found = kafka_error(failed)
            if found is not None and found.fatal():
                return found
    return error
