"""What goes wrong in Kafka's clients, in the words of the ports. The other modules here raise what
these functions make.

Who was fenced is told so by several codes: librdkafka's own ``_FENCED``, the broker's, and
``_FATAL`` for whatever is asked of a client after that (whose `fatal()` is False).
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
        # What a commit says of records that never left: too old, or of an unknown partition.
        KafkaError._INCONSISTENT,
        # The coordinator has forgotten an id that was idle too long, a partition its producer.
        *(KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID),
        KafkaError.TRANSACTION_ABORTABLE,
    }
)
"""Why a transaction cannot be committed although none of its records was refused."""
ABOUT_SIZE: Final = (
    "a record may have as many bytes as max.message.bytes of the topic and max.request.size of the "
    "producer say, 1 MiB by default"
)
SILENT: Final = "the other side closes each connection before it answers"
REASON_S: Final = 5.0
"""Time for a client to say what it knows already: on a busy machine its own thread is late."""
_LOOK_S: Final = 0.02
_CLOSED: Final = "Disconnected: "
"""In a complaint: the other side has ended a connection that it had taken."""
_HEARD_MS: Final = 60_000
"""For so long what a client last complained about is taken as the reason of a failure."""


class Contact:
    """Whom one client talks to, and what it complained about last."""

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
        """Why the brokers let this client not in, if that is what it heard last."""
        return self._refusal if self._recently() else ""

    @property
    def complaint(self) -> str:
        """What it heard last, if that is no minute old."""
        return self._last if self._recently() else ""

    @property
    def principal(self) -> str:
        """Whom brokers take this client for, as far as its settings tell."""
        return of_librdkafka(self._given)

    @property
    def silence(self) -> str:
        """What may be wrong where brokers take connections and answer nothing, if that is what it
        heard last: librdkafka complains of that nowhere, or says only that they hang up."""
        if self._recently():
            if _CLOSED not in self._last:
                return ""
        elif time.monotonic() - self._down_at >= _HEARD_MS / 1000:
            return ""
        protocol = str(self._given.get("security.protocol", "plaintext")).upper()
        return f"{SILENT}; check security.protocol, here {protocol}, and the port"

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's settings, with this contact listening. No decisions are made from what it
        hears: with transactional producers callbacks may run while an error is pending."""
        return {
            **self._given,
            "error_cb": self._on_error,
            "logger": client_logger(self._heard),
        }

    def answer(self, client: Any, asked: "Future[Any]") -> Any:
        """What an admin client was asked for, or a failure as soon as a broker refuses it: it would
        go on trying until its time is up.

        Raises:
            KafkaException: the answer is an error; or `refusal` says why there is none.
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
        """`what`, the brokers' address, librdkafka's reason and what came before it. What was
        refused for good is a RefusedError.

        `right`: what is needed for it, as operation and resource (``Read on Topic:t``), to be said
        if that is what lacks."""
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
        """As `error`, for records of a topic: one that is too large is a TooLargeError."""
        found = self.error(what, error, right=right)
        too_large = error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        return TooLargeError(f"{found}; {ABOUT_SIZE}") if too_large else found

    def lacking(self, error: KafkaError, right: str = "") -> str:
        """Who lacks which right, after an error of `NO_RIGHT`. `right`: what it is if that is of
        the error's kind, for instance one to a topic."""
        if (kind := _KINDS.get(error.code())) is None or kind not in right:
            right = _right(self._given, error)
        return f"{self.principal} lacks {right}"

    def task_error(self, what: str, error: KafkaError | None = None) -> TransportError:
        """As `error`, for a task: a missing right fails it, as with Connect. A worker waits for
        its own, which somebody may be about to give."""
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
    """What a client with these settings needs for the resource of the error's kind."""
    code = error.code()
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return f"Read on Group:{settings.get('group.id', '')}"
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f"Write on TransactionalId:{settings.get('transactional.id', '')}"
    if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return "a right on the Cluster"
    return "Read on that topic" if "group.id" in settings else "a right on that topic"


def kafka_error(error: BaseException) -> KafkaError | None:
    """The error inside what a client raised; None: it is none of Kafka's.

    A callback that runs while a fatal error is pending makes a SystemError of it, with the error
    as its cause.
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
    """After a fatal error librdkafka answers everything with ``_FATAL``; asked to commit (which it
    cannot any more), it says what it was; or, now and then, that the time was too short: then
    the event of the error has not been seen yet, and `poll` raises it."""
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
