"""A task's producer over slow brokers, with a client that plays them."""

import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from support.kafka.slow_producer import (
    LATE,
    LIMIT_MS,
    RECORDS,
    SlowClient,
    batches,
    plain,
    short_limits,  # noqa: F401
    transactional,
)

from headgate.ports import (
    Ack,
    FencedError,
    ProducerRecord,
    RefusedError,
    RowNumbers,
    TransactionOverError,
    TransportError,
    UnknownTopicError,
    ValueColumn,
)
from headgate_kafka.failures import Contact
from headgate_kafka.records import partition_choice, plain_producer
from headgate_kafka.records import producer as producers
from headgate_kafka.records.first_contact import LOOKS
from headgate_kafka.records.partition_choice import PartitionChoice
from headgate_kafka.records.plain_producer import PlainProducer
from headgate_kafka.records.producer import AGAIN_MAX


class ShrunkClient(SlowClient):
    """A client of a topic that was created anew with one partition.

    It learns that when it is asked, or when the brokers have refused `unseen` records.
    """

    def __init__(self, unseen: int = 0) -> None:
        super().__init__(0)
        self.taken: list[bytes | None] = []
        self._unseen = unseen
        self._reports: list[Callable[[], None]] = []

    def produce(
        self, _topic: str, value: bytes | None, _key: object, partition: int, *given: Any
    ) -> None:
        if partition == 0:
            self.taken.append(value)
            return
        unknown = KafkaError(KafkaError._UNKNOWN_PARTITION)
        if not self._unseen:
            raise KafkaException(unknown)
        self._unseen -= 1
        self._reports.append(partial(given[0], unknown, None))

    def flush(self, _timeout_s: float) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return 0


class CrowdedClient(SlowClient):
    """A client of brokers that take at most 10 bytes in one batch."""

    def __init__(self, settings: dict[str, Any], taken: list[bytes | None]) -> None:
        super().__init__(0)
        self._alone = settings.get("batch.num.messages") == 1
        self._taken = taken
        self._queue: list[tuple[bytes, Callable[..., None]]] = []

    def produce(
        self, _topic: str, value: bytes, _key: object, _partition: int, *given: Any
    ) -> None:
        self._queue.append((value, given[0]))

    def flush(self, _timeout_s: float) -> int:
        queue, self._queue = self._queue, []
        for batch in [[each] for each in queue] if self._alone else [queue]:
            if sum(len(value) for value, _ in batch) <= 10:
                self._taken += [value for value, _ in batch]
                continue
            for _, report in batch:
                report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), SimpleNamespace())
        return 0


def test_small_records_of_a_batch_that_is_too_large_are_sent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka fails each record of such a batch. Only the large one may be passed over."""
    taken: list[bytes | None] = []
    warnings: list[str] = []
    monkeypatch.setattr(plain_producer, "Producer", lambda given: CrowdedClient(given, taken))
    settings = {"bootstrap.servers": "b:9092"}
    producer = PlainProducer(settings, lambda _topic: 1, warnings.append)
    values = [b"0", b"1", b"2" * 11, b"3", b"4"]
    producer.send([ProducerRecord("t", None, None, value) for value in values])
    first, refused, last = producer.acks()
    assert (first, last) == (Ack(0, 1), Ack(3, 4))
    assert (refused.first, refused.last) == (2, 2)
    assert "of 11 bytes" in str(refused.error)
    assert taken == [b"0", b"1", b"3", b"4"]
    producer.send([ProducerRecord("t", None, None, b"%d" % n) for n in range(5, 20)])
    assert producer.acks() == [Ack(5, 19)]
    (told,) = warnings
    assert "Set producer.override.batch.size below that limit" in told


class FickleClient(SlowClient):
    """A client of a topic whose partitions change whenever a record is sent."""

    def __init__(self) -> None:
        super().__init__(0)
        self.tries = 0

    def produce(self, *_given: object) -> None:
        self.tries += 1
        assert self.tries < 20, "tried without end"
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def flush(self, _timeout_s: float) -> int:
        return 0


def test_records_that_go_out_slowly_are_waited_for() -> None:
    client = SlowClient(0)
    # Longer in all than brokers that take no record are waited for.
    assert plain(client).acks() == [Ack(0, 9)]
    assert client.waits == 10


def test_brokers_that_take_no_record_are_given_up() -> None:
    going = [1, 1, 1]
    producer = plain(SlowClient(0, lambda: going.pop() if going else 0))
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"7 records .* none was for 200 ms; .* at b:9092"):
        producer.acks()
    assert time.monotonic() - began < 10 * LIMIT_MS / 1000
    assert not going


def test_a_commit_may_take_as_long_as_its_transaction() -> None:
    client = SlowClient(4)
    transactional(client, 60_000).commit([(b"k", b"v")])
    assert client.waits == 4


def test_a_commit_is_given_up_with_its_transaction() -> None:
    client = SlowClient(1_000)
    producer = transactional(client, 3 * LIMIT_MS)
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"Commit timed out.*_TIMED_OUT"):
        producer.commit([])
    took = time.monotonic() - began
    assert 2 * LIMIT_MS / 1000 < took < 10 * LIMIT_MS / 1000
    # It may be tried again, for as long as any commit.
    client._needed = 0
    producer.commit([])


def test_a_commit_that_was_begun_is_given_up_with_its_transaction_and_may_be_tried_again() -> None:
    client = SlowClient(1_000)
    producer = transactional(client, 3 * LIMIT_MS)
    for _ in range(2):
        end = producer.begin_commit([(b"k", b"v")])
        assert end is not None
        with pytest.raises(TransportError, match=r"Commit timed out.*_TIMED_OUT"):
            end()
    client._needed = 0
    producer.commit([(b"k", b"v")])
    # Its ten records, and the offset once.
    assert client._left == 11
    producer.close()


def test_a_commit_that_is_begun_where_no_thread_can_be_is_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    client = SlowClient(2)
    assert transactional(client).begin_commit([(b"k", b"v")]) is None
    assert client.waits == 2


class TakingClient(SlowClient):
    """A client that keeps in `taken` what it was given of each record, by place."""

    def __init__(self) -> None:
        super().__init__(0)
        self.taken: list[tuple[Any, ...]] = []

    def produce(self, *given: Any) -> None:
        self.taken.append(given)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_producer_is_connected_once_before_it_is_initialised(
    ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = TakingClient()
    initialised: list[float] = []
    client.init_transactions = initialised.append
    monkeypatch.setattr(producers, "Producer", lambda _settings: client)
    producer = transactional(None, ready=False)
    if ahead:
        producer.connect()
        assert (client.waits, initialised) == (LOOKS, [])
    producer.init()
    assert (client.waits, len(initialised)) == (LOOKS, 1)


def test_a_producer_that_nobody_answered_is_connected_again_when_it_is_initialised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason for which it was refused then may be gone."""
    client: Any = TakingClient()
    client.init_transactions = lambda _timeout_s: None
    found = client.list_topics

    def away(_topic: str, _timeout_s: float) -> Any:
        client.list_topics = found
        raise LATE

    client.list_topics = away
    monkeypatch.setattr(producers, "Producer", lambda _settings: client)
    producer = transactional(None, ready=False)
    producer.connect()
    assert client.waits == 0
    monkeypatch.setattr(Contact, "refusal", "no such user")
    producer.init()
    assert client.waits == LOOKS


def test_each_record_has_its_own_headers_and_time() -> None:
    client = TakingClient()
    producer = transactional(client, count=2)
    one, other = (("h", b"1"),), (("h", b"2"), ("i", b""))
    wanted = [(one, 7), (one, None), ((), None), (other, 0), ((), 8), (one, 9), ((), None)]
    producer.send([ProducerRecord("t", 0, None, b"v", *each) for each in wanted])
    taken = [
        (tuple(each[7]) if len(each) > 7 else (), (each + (None,) * 7)[6]) for each in client.taken
    ]
    assert taken == [(headers, time or (0 if headers else None)) for headers, time in wanted]


class FullClient(TakingClient):
    """A client whose queue is full at the records of some places, once each. At others it raises
    the given error."""

    def __init__(self, full: set[int], raised: dict[int, Exception] | None = None) -> None:
        super().__init__()
        self._full, self._raised = full, raised or {}

    def produce(self, *given: Any) -> None:
        at = len(self.taken)
        if at in self._full:
            self._full.remove(at)
            raise BufferError("queue full")
        if at in self._raised:
            raise self._raised.pop(at)
        super().produce(*given)


@pytest.mark.parametrize("headers", [(), (("h", b"1"), ("n", RowNumbers(range(10, 15))))])
@pytest.mark.parametrize("time_ms", [None, 7])
def test_a_column_goes_on_where_the_queue_was_full(headers: Any, time_ms: int | None) -> None:
    client = FullClient({0, 2, 4})
    producer = transactional(client, count=2)
    values = [b"%d" % n for n in range(5)]
    producer.send_values(ValueColumn("t", 1, b"k", values, headers, time_ms))
    assert [given[:4] for given in client.taken] == [("t", value, b"k", 1) for value in values]
    taken = [(tuple(given[7]) if len(given) > 7 else (), *given[6:7]) for given in client.taken]
    numbered = [(("h", b"1"), ("n", b"%d" % n)) if headers else () for n in range(10, 15)]
    stamp = (time_ms or 0,) if headers or time_ms else ()
    assert taken == [(each, *stamp) for each in numbered]
    assert producer._sent == 5


def test_a_column_whose_partition_is_gone_goes_on_with_another() -> None:
    unknown = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
    client = FullClient(set(), {2: unknown})
    producer = transactional(client, count=3)
    producer.send([ProducerRecord("t", None, None, b"first")])
    client._raised = {3: unknown}
    producer.send_values(ValueColumn("t", None, None, [b"0", b"1", b"2", b"3"]))
    # Asked again, the topic has one partition.
    assert [given[1:4:2] for given in client.taken[1:]] == [
        *((b"0", 1), (b"1", 1)),
        *((b"2", 0), (b"3", 0)),
    ]


def test_a_column_whose_partitions_change_all_the_time_is_given_up() -> None:
    client = FickleClient()
    with pytest.raises(TransportError, match="a record for t"):
        transactional(client, count=2).send_values(ValueColumn("t", None, None, [b"v"]))
    assert client.tries == AGAIN_MAX + 1


def test_the_value_of_a_column_that_is_too_large_is_named_by_its_place() -> None:
    large = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
    client = FullClient(set(), {2: large})
    producer = transactional(client, count=2)
    with pytest.raises(TransactionOverError, match="a record for t of 9 bytes") as raised:
        producer.send_values(ValueColumn("t", 0, b"k", [b"0", b"1", b"12345678", b"3"]))
    assert raised.value.place == 2
    with pytest.raises(TransactionOverError, match="abort it"):
        producer.commit(())


def test_partitions_are_looked_at_after_a_record_without_one_too() -> None:
    client = TakingClient()
    producer = transactional(client, count=2)
    wanted = [(None, None), (1, None), (None, b"k"), (None, None), (2, None)]
    records = [ProducerRecord("t", partition, key, b"v") for partition, key in wanted]
    producer.send(records[:4])
    assert [given[3] for given in client.taken] == [0, 1, -1, 0]
    with pytest.raises(ValueError, match="partition 2 of t, expected 0 to 0"):
        producer.send(records)
    assert len(client.taken) == 4


@pytest.mark.parametrize(
    ("code", "patient"),
    [(KafkaError.UNKNOWN_TOPIC_OR_PART, True), (KafkaError.TOPIC_EXCEPTION, False)],
)
def test_a_topic_that_nobody_makes_is_unknown(
    code: int, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(topic: str) -> int:
        raise UnknownTopicError(f"topic {topic} does not exist")

    monkeypatch.setattr(partition_choice, "MADE_MS", LIMIT_MS)
    client: Any = SlowClient(0)
    client.told = KafkaError(code)
    producer = PlainProducer({}, unknown, lambda _line: None)
    producer._client = client
    with pytest.raises(UnknownTopicError, match="topic t does not exist"):
        producer.send(RECORDS)
    assert (client.waits > 1) is patient


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (
            KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, "too long", fatal=True),
            RefusedError,
            r"timeout\.ms of 7000 is above .*max\.timeout\.ms.*producer\.override\.tr.*too long",
        ),
        (KafkaError(KafkaError._UNSUPPORTED_FEATURE, "old", fatal=True), RefusedError, "old"),
        (
            KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", fatal=True),
            RefusedError,
            "lacks Write on TransactionalId",
        ),
        (KafkaError(KafkaError._FENCED, "fenced", fatal=True), FencedError, "another took the id"),
        *(
            (KafkaError(code, "waits", retriable=True), TransportError, "waits")
            for code in (
                *(KafkaError._TIMED_OUT, KafkaError.CONCURRENT_TRANSACTIONS),
                *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR),
                *(KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TRANSPORT),
            )
        ),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN, "away"), TransportError, "away"),
    ],
)
def test_what_initialising_cannot_wait_for_is_told_from_what_it_can(
    error: KafkaError, raised: type[Exception], told: str
) -> None:
    def init_transactions(_timeout_s: float) -> None:
        raise KafkaException(error)

    client = SimpleNamespace(init_transactions=init_transactions)
    producer = transactional(client, 7_000, ready=False)
    with pytest.raises(raised, match=told) as found:
        producer.init()
    assert type(found.value) is raised
    # What can be waited for is gone on with, by the same client.
    assert (producer._client is client) is error.retriable()


@pytest.mark.parametrize("unseen", [0, 2, 6])
def test_what_no_partition_is_left_for_goes_to_another(unseen: int) -> None:
    client = ShrunkClient(unseen)
    producer = plain(client, count=3)
    for batch in batches(3):
        producer.send(batch)
    assert producer.acks() == [Ack(0, 8)]
    assert sorted(map(bytes, filter(None, client.taken))) == [
        b"%d.%d" % divmod(n, 3) for n in range(9)
    ]
    # What was refused comes later, and in its order.
    late = [value for value in client.taken if value is not None and not value.startswith(b"0")]
    assert late == sorted(late)
    for batch in batches(2):
        producer.send(batch)
    asked = client.waits
    assert producer.acks() == [Ack(9, 14)]
    assert client.waits == asked == 1


def test_what_names_a_partition_that_is_gone_is_refused_by_its_number() -> None:
    client = ShrunkClient()
    producer = plain(client, count=3)
    record = ProducerRecord("t", 2, None, b"named")
    producer.send([ProducerRecord("t", 0, None, b"0"), record, ProducerRecord("t", 0, None, b"2")])
    first, refused, last = producer.acks()
    assert (first, last) == (Ack(0, 0), Ack(2, 2))
    assert (refused.first, refused.last) == (1, 1)
    assert "_UNKNOWN_PARTITION" in str(refused.error)


def test_records_of_a_topic_that_is_gone_are_kept_and_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_choice, "MADE_MS", LIMIT_MS)
    client = ShrunkClient(unseen=1)
    producer = plain(client, count=3)
    producer.send(batches(1)[0])
    producer.send(batches(1)[0])
    client.told = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    for _ in range(2):
        with pytest.raises(TransportError, match="topic 't', which was there, is not any more"):
            producer.acks()
    client.told = None
    assert producer.acks() == [Ack(0, 5)]
    assert len(client.taken) == 6


def test_a_partition_is_chosen_again_before_anything_is_in_the_transaction() -> None:
    client = ShrunkClient()
    producer = transactional(client, count=3)
    for batch in batches(3):
        producer.send(batch)
    producer.commit([])
    assert client.taken == [b"%d.%d" % divmod(n, 3) for n in range(9)]
    assert client.waits == 2  # once for the topic, once for the commit


def test_partitions_that_come_and_go_are_not_waited_for_without_end() -> None:
    """The task starts again, and skips nothing."""
    client = FickleClient()
    producer = plain(client, count=3)
    producer.send(batches(1)[0][:1])
    for _ in range(2):
        with pytest.raises(TransportError, match="partitions of t come and go"):
            producer.acks()
    client = FickleClient()
    with pytest.raises(TransportError, match="_UNKNOWN_PARTITION"):
        transactional(client, count=3).send(batches(1)[0])
    assert client.tries == 1 + AGAIN_MAX


def test_counts_are_asked_again_when_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_choice, "MADE_MS", LIMIT_MS)
    client: Any = SlowClient(0)
    contact = Contact({"bootstrap.servers": "b:9092"}, lambda _line: None)
    choice = PartitionChoice(lambda _topic: 3, contact, lambda: client, 0.0)
    record = [ProducerRecord("t", None, None, b"v")]
    # The first time nothing is old; then there is one partition, as the client says.
    assert [choice.choose(record)["t"] for _ in range(3)] == [0, 0, 0]
    list_topics = client.list_topics

    def away(_topic: str, _timeout_s: float) -> Any:
        raise LATE

    client.list_topics = away
    assert choice.choose(record) == {"t": 0}
    client.list_topics = list_topics
    client.told = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(TransportError, match="which was there, is not any more"):
        choice.choose(record)
    client.told = None
    young = PartitionChoice(lambda _topic: 3, contact, lambda: client, 60.0)
    assert [young.choose(record)["t"] for _ in range(4)] == [0, 1, 2, 0]
