"""What an open transaction makes of a broker that is there and does not answer."""

from collections.abc import Callable

import pytest
from support.embedded.worlds import read_on
from support.kafka.cluster import await_true, read_committed
from support.kafka.world import KafkaWorld

from headgate.ports import ProducerRecord, TransportError
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_a_broker_that_is_silent_for_longer_than_records_wait(
    own_broker: Callable[..., Broker],
) -> None:
    """Nothing was refused: the task is to start anew."""
    broker = own_broker()
    limits = {"producer.delivery.timeout.ms": "2000", "producer.request.timeout.ms": "1000"}
    world = KafkaWorld(broker.address, limits)
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    lost = [ProducerRecord(world.name("t"), 0, None, b"lost")]
    late = r"was aborted: its records could not be delivered; .* at 127"

    def again(value: bytes) -> None:
        producer.init()
        producer.send([ProducerRecord(world.name("t"), 0, None, value)])
        producer.commit([(b"k", value)])

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
    with pytest.raises(TransportError, match=late) as found:
        await_true("no more records", lambda: producer.send(lost), 30)  # one was under way
    broker.thaw()
    assert type(found.value) is TransportError
    again(b"3")
    kept = [value for _, value in read_committed(broker.address, world.name("t"))]
    assert kept == [b"1", b"2", b"3"]
    assert [r.value for r in read_on(world.connect().offset_log)[0]] == [b"3"]
    world.close()
