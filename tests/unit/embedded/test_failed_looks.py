"""A look at the log fails after a change was noticed. The change is not forgotten.

The next look would otherwise take "nothing has changed" for "nothing is there". A reader would
believe itself at the end of the offsets, or a call would get no answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate import wire
from headgate.connector.sink_names import TopicPattern
from headgate.herder.messages import DescribeWorker
from headgate.membership.messages import JoinGroup
from headgate.ports import ProducerRecord, TransportError
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.peers import _Asked


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    made = open_transport(transport_settings(tmp_path), url="w")
    yield made
    made.close()


def fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read transaction cannot begin."""
    read = Database.read

    @contextmanager
    def broken(_database: Database) -> Iterator[Any]:
        monkeypatch.setattr(Database, "read", read)
        raise TransportError("disk on fire")
        yield

    monkeypatch.setattr(Database, "read", broken)


Look = Callable[[EmbeddedTransport], Any]


def _change_config(transport: EmbeddedTransport) -> None:
    transport.config_log.append([("connector-c", b"{}")], privileged=False)


def _change_offsets(transport: EmbeddedTransport) -> None:
    transport.offset_log.append([(b"key", b"{}")])


def _change_group(transport: EmbeddedTransport) -> None:
    transport.group.send(JoinGroup("g", "", "c", "connect", (("p", b""),), 60_000, 10_000))


def _change_calls(transport: EmbeddedTransport) -> None:
    with pytest.raises(TransportError):  # nobody waits for the answer; the call stands there
        transport.peers.call("w", DescribeWorker(), 0, 0)
    with transport._database.write() as connection:
        connection.execute(
            "insert into calls(id, url, payload, hops, boot, deadline_ms) "
            "values('1', 'w', ?, 0, ?, 9223372036854775807)",
            (wire.dumps(_Asked(DescribeWorker(), "")), transport.peers._boot),
        )


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (_change_config, lambda transport: transport.config_log.read(0)[0]),
        (_change_offsets, lambda transport: transport.offset_log.read(0)[0]),
        (_change_group, lambda transport: transport.group.receive()),
        (_change_calls, lambda transport: transport.peers.incoming()),
    ],
)
def test_what_was_noticed_is_found_by_the_next_look(
    transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch, change: Look, look: Look
) -> None:
    assert not look(transport)
    change(transport)
    fails_once(monkeypatch)
    with pytest.raises(TransportError, match="on fire"):
        look(transport)
    assert len(look(transport)) == 1


def resting(transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer of a topic of two partitions that has read all there is."""
    transport.record_log.create_topic("t", 2)
    consumer: Any = transport.record_log.consumer("g", ["t"], "c")
    while not consumer.assignment():
        consumer.poll(10, 50)
    monkeypatch.setattr(consumer, "_keep_membership", lambda: None)  # which looks and writes, too
    while not consumer._exhausted or consumer._watch.changed():
        consumer.poll(10, 0)
    return consumer


def send(transport: EmbeddedTransport, *partitions: int) -> None:
    producer = transport.record_log.producer("p", None, None)
    producer.send([ProducerRecord("t", number, None, b"%d" % number) for number in partitions])
    producer.acks()


def test_a_consumer_goes_on_after_a_failed_poll(
    transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = resting(transport, monkeypatch)
    send(transport, 0)
    fails_once(monkeypatch)
    with pytest.raises(TransportError, match="on fire"):
        consumer.poll(10, 0)
    assert [record.value for record in consumer.poll(10, 0)] == [b"0"]
    consumer.close()


def test_what_a_poll_took_before_it_failed_is_not_lost(
    transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = resting(transport, monkeypatch)
    send(transport, 0, 1)
    read, reads = Database.read, []

    def broken(database: Database) -> Any:
        reads.append(1)
        if len(reads) == 2:
            raise TransportError("disk on fire")
        return read(database)

    monkeypatch.setattr(Database, "read", broken)
    found = [record.value for _ in range(3) for record in consumer.poll(10, 0)]
    assert sorted(found) == [b"0", b"1"]
    consumer.close()


def test_a_topic_whose_coming_was_noticed_is_found_by_the_next_look(
    transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer: Any = transport.record_log.consumer("g", TopicPattern("logs-.*"), "c")
    consumer._look_for_topics()
    assert consumer._topics == []
    transport.record_log.create_topic("logs-a", 1)
    fails_once(monkeypatch)
    with pytest.raises(TransportError, match="on fire"):
        consumer._look_for_topics()
    consumer._look_for_topics()
    assert consumer._topics == ["logs-a"]
    consumer.close()
