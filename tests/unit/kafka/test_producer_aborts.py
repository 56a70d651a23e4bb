"""What a task is told when its transaction cannot be committed, on a client that plays brokers."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from support.kafka.slow_producer import (
    LATE,
    RECORDS,
    SlowClient,
    batches,
    short_limits,  # noqa: F401
    transactional,
)

from headgate.ports import FencedError, RefusedError, TransactionOverError, TransportError


class AbortableClient(SlowClient):
    """Its transaction cannot be committed, for a reason that a commit alone is told."""

    def __init__(self, code: int) -> None:
        super().__init__(0)
        self.error = KafkaError(code, "the reason", txn_requires_abort=True)
        self.stuck = False
        self.answers_in_s = 0.0
        self.commits = 0

    def produce(self, *given: object) -> None:
        if self.stuck:
            raise KafkaException(KafkaError(KafkaError._STATE, "Erroneous state"))
        super().produce(*given)

    def commit_transaction(self, timeout_s: float) -> None:
        self.commits += 1
        raise LATE if timeout_s < self.answers_in_s else KafkaException(self.error)

    def abort_transaction(self, _timeout_s: float) -> None:
        pass


REFUSED = (TransactionOverError, r"a record was refused, for instance .* the reason")
TOO_LARGE = (TransactionOverError, r"larger than the topic's max.message.bytes .* the reason")
LATER = (TransportError, r"records could not be delivered; .* the reason")
GONE = (TransportError, r"topic 't' is gone; .* the reason")
CHANGED = (TransportError, r"'t' has other partitions now than the 3 it had; .* the reason")


@pytest.mark.parametrize("stuck", [False, True])
@pytest.mark.parametrize(
    ("code", "as_before", "gone", "changed"),
    [
        (KafkaError._TIMED_OUT, LATER, GONE, CHANGED),
        (KafkaError._INCONSISTENT, LATER, GONE, CHANGED),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, LATER, GONE, CHANGED),
        (KafkaError._UNKNOWN_PARTITION, LATER, GONE, CHANGED),
        (KafkaError.OPERATION_NOT_ATTEMPTED, REFUSED, GONE, CHANGED),
        (KafkaError.MSG_SIZE_TOO_LARGE, TOO_LARGE, TOO_LARGE, TOO_LARGE),
        *((code, REFUSED, REFUSED, REFUSED) for code in (29, 87)),
    ],
)
def test_an_abort_for_want_of_delivery_is_told_from_one_for_a_refused_record(
    code: int,
    as_before: tuple[type[Exception], str],
    gone: tuple[type[Exception], str],
    changed: tuple[type[Exception], str],
    stuck: bool,
) -> None:
    for count, told, (raised, text) in (
        (1, None, as_before),
        (1, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), gone),
        (3, None, changed),
    ):
        client = AbortableClient(code)
        producer = transactional(client, count=count)
        producer.send(batches(1)[0])
        client.told, client.stuck = told, stuck
        for ask in (lambda it: it.commit([(b"k", b"v")]), lambda it: it.send(RECORDS)):
            with pytest.raises(raised, match=text) as found:
                ask(producer)
            assert type(found.value) is raised
        with pytest.raises(raised, match=text):
            producer.commit([])
        assert client.commits == 1  # and it is not waited for, whatever the reason


@pytest.mark.parametrize(
    ("heard", "raised"),
    [
        ("handshake failed: Broker: Request not valid in current SASL state", TransportError),
        ("SASL authentication error: Authentication failed", RefusedError),
    ],
)
def test_who_is_not_let_in_any_more_has_no_record_refused(
    heard: str, raised: type[Exception]
) -> None:
    """Of a session that is renewed within a second of the one before brokers say the first: it
    passes, so the task is started anew."""
    client = AbortableClient(KafkaError._AUTHENTICATION)
    producer = transactional(client)
    producer.send(batches(1)[0])
    producer._contact._on_error(KafkaError(KafkaError._AUTHENTICATION, heard))
    with pytest.raises(raised, match="let it not in any more at") as found:
        producer.commit([(b"k", b"v")])
    assert type(found.value) is raised


@pytest.mark.parametrize("answers_in_s", [1.0, 1e9])
def test_the_reason_is_waited_for_where_the_client_is_kept_waiting(answers_in_s: float) -> None:
    client = AbortableClient(KafkaError._TIMED_OUT)
    producer = transactional(client)
    client.stuck, client.answers_in_s = True, answers_in_s
    heard = answers_in_s < 1e9
    with pytest.raises(TransportError, match="the reason" if heard else "Commit timed out"):
        producer.send(RECORDS)
    # Some of them are not in it: also where nobody knows yet that it cannot be committed.
    lost = (TransportError, "the reason")
    if not heard:
        lost = (TransactionOverError, "some records of a batch are not in the transaction; abort")
    for _ in range(2):
        with pytest.raises(lost[0], match=lost[1]):
            producer.commit([(b"k", b"v")])
    assert client.commits == 1


def test_a_commit_that_is_under_way_is_not_gone_on_with_by_who_sends() -> None:
    client = AbortableClient(KafkaError._TIMED_OUT)
    client.answers_in_s = 1e9
    producer = transactional(client, 0)
    with pytest.raises(TransportError, match="Commit timed out"):
        producer.commit([(b"k", b"v")])
    commits, client.stuck = client.commits, True
    with pytest.raises(TransactionOverError, match="Erroneous state"):
        producer.send(RECORDS)
    assert client.commits == commits


@pytest.mark.parametrize(
    ("state", "raised"),
    [
        ("CompleteAbort", TransactionOverError),
        ("PrepareEpochFence", TransactionOverError),
        ("Empty", FencedError),
        ("Ongoing", FencedError),
        (None, FencedError),
    ],
)
def test_what_took_too_long_is_told_from_a_fence_by_the_coordinator(
    state: str | None, raised: type[Exception]
) -> None:
    """Where it does not answer the task counts as fenced: that one is started again."""
    client = AbortableClient(KafkaError.INVALID_PRODUCER_EPOCH)
    producer = transactional(client, timeout_ms=0, state=state)
    with pytest.raises(raised):
        producer.commit([])
