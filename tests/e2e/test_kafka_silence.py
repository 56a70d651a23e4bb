"""An open transaction on a broker that is up but does not answer."""

import contextlib
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.embedded.worlds import read_on
from support.kafka.broker import Found
from support.kafka.cluster import await_true, read_committed
from support.kafka.relay import END_TXN, INIT_PRODUCER_ID, relay_to
from support.kafka.world import KafkaWorld

from headgate.ports import (
    FencedError,
    Producer,
    ProducerRecord,
    TransactionOverError,
    TransportError,
)
from local_kafka.broker import Broker
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow

NOT_FENCED = {"broker.session.timeout.ms": "60000"}
"""Else the controller takes the frozen broker out: `Broker` says what becomes of transactions."""
LIMITS = {"producer.delivery.timeout.ms": "2000", "producer.request.timeout.ms": "1000"}


def clients() -> int:
    """Return the librdkafka clients in this process: each has one thread of this name."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += (task / "comm").read_text().strip() == "rdk:main"
    return found


@pytest.mark.exhaustive
def test_a_broker_that_is_silent_for_longer_than_records_wait(
    own_broker: Callable[..., Broker],
) -> None:
    """The broker refused nothing, so the task must start again."""
    broker = own_broker(settings=NOT_FENCED)
    world = KafkaWorld(broker.address, LIMITS)
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    lost = [ProducerRecord(world.name("t"), 0, None, b"lost")]
    late = r"was given up: its records could not be delivered; .* at 127"

    def again(value: bytes) -> None:
        producer.init()
        producer.send([ProducerRecord(world.name("t"), 0, None, value)])
        producer.commit([(b"k", value)])

    def send_and_commit() -> None:
        # librdkafka tells the sender, or only the committer: its threads decide that.
        with contextlib.suppress(AssertionError):
            await_true("no more records", lambda: producer.send(lost), 5)
        producer.commit([(b"k", b"lost")])

    again(b"1")
    broker.freeze()
    producer.send(lost)  # never under way: its partition is not in the transaction
    with pytest.raises(TransportError, match=late) as found:
        producer.commit([(b"k", b"lost")])
    broker.thaw()
    assert type(found.value) is TransportError
    again(b"2")
    producer.send(lost)
    producer._client.flush(10)
    broker.freeze()
    alive = clients()
    with pytest.raises(TransportError, match=late) as found:
        send_and_commit()
    assert clients() == alive - 1, "it goes on by itself as long as the error is held"
    broker.thaw()
    assert type(found.value) is TransportError
    again(b"3")
    kept = [value for _, value in read_committed(broker.address, world.name("t"))]
    assert kept == [b"1", b"2", b"3"]
    assert [r.value for r in read_on(world.connect().offset_log)[0]] == [b"3"]
    world.close()


ENDS: dict[str, Callable[[Producer], object]] = {
    "commit": lambda producer: producer.commit([(b"k", b"lost")]),
    "abort": lambda producer: producer.abort(),
    "close": lambda producer: producer.close(),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", sorted(ENDS))
def test_who_gave_records_up_does_not_end_the_transaction_of_its_heir(
    own_broker: Callable[..., Broker], end: str
) -> None:
    """librdkafka would ask for a new epoch after its abort. Brokers take that of a producer that
    was overtaken in between."""
    (port,) = free_ports(1)
    with relay_to(port) as relay:
        advertised = {"advertised.listeners": f"PLAIN://127.0.0.1:{relay.port}"}
        broker = own_broker(port=port, settings={**NOT_FENCED, **advertised})
        world = KafkaWorld(broker.address, LIMITS)
        log = world.connect().record_log
        log.create_topic(world.name("t"), 1)
        old, heir = (log.producer(name, world.name("g-c-0"), None) for name in ("old", "heir"))
        lost = [ProducerRecord(world.name("t"), 0, None, b"lost")]
        old.init()
        old.send(lost)
        assert old._client.flush(10) == 0
        broker.freeze()
        old.send(lost)
        assert old._client.flush(10) == 0, "it was given up"
        broker.thaw()
        relay.hold(INIT_PRODUCER_ID, "old")
        with ThreadPoolExecutor(1) as beside:
            ended = beside.submit(ENDS[end], old)
            await_true("the end", lambda: ended.done() or relay.held.is_set(), 30)
            heir.init()
            heir.send([ProducerRecord(world.name("t"), 0, None, b"heir")])
            assert heir._client.flush(10) == 0
            relay.release()
            with contextlib.suppress(TransportError):
                ended.result(30)
        heir.commit([(b"k", b"heir")])
        kept = [value for _, value in read_committed(broker.address, world.name("t"))]
        assert kept == [b"heir"]
        world.close()


@pytest.mark.exhaustive
def test_a_leader_that_is_overtaken_after_its_commit_does_not_say_that_nothing_was_written(
    own_broker: Callable[..., Broker],
) -> None:
    """The answer to the leader's commit is lost. Asked again, the broker only tells it of the later
    leader. A caller that takes the write for failed writes a restart a second time."""
    (port,) = free_ports(1)
    with relay_to(port) as relay:
        advertised = {"advertised.listeners": f"PLAIN://127.0.0.1:{relay.port}"}
        broker = own_broker(port=port, settings=advertised)
        world = KafkaWorld(broker.address)
        old, heir = (world.connect().config_log for _ in range(2))
        old.claim(1)
        old.append([("before", b"1")], privileged=True)
        relay.lose_answer(END_TXN, old._leader._contact.settings["client.id"])
        with ThreadPoolExecutor(1) as beside:
            written = beside.submit(old.append, [("restart", b"2")], privileged=True)
            await_true("the second commit", lambda: written.done() or relay.held.is_set(), 30)
            heir.claim(2)
            relay.release()
            with pytest.raises(TransportError, match="may be in the topic or not"):
                written.result(30)
        topic = world.properties["config.storage.topic"]
        assert [v for _, v in read_committed(broker.address, topic)] == [b"1", b"2"]
        with pytest.raises(FencedError):
            old.append([("more", b"3")], privileged=True)
        world.close()


def test_an_error_keeps_no_client_alive(kafka_broker: Found) -> None:
    """A client that lives goes on by itself, even after its successor has started."""
    world = KafkaWorld(kafka_broker.address)
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    world.alter_topic(world.name("t"), {"max.message.bytes": "1000"})
    producer = log.producer("c", world.name("g-c-0"), None)
    gc.disable()
    try:
        before = clients()
        producer.init()
        assert clients() == before + 1
        producer.send([ProducerRecord(world.name("t"), 0, None, bytes(5_000))])
        with pytest.raises(TransactionOverError, match=r"max\.message\.bytes") as held:
            producer.commit([(b"k", b"v")])
        assert clients() == before
        assert held.value.__traceback__ is not None
    finally:
        gc.enable()
        world.close()
