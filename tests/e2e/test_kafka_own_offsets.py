"""A connector with an offsets topic of its own has its offsets there and in the workers' global
topic."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.embedded.worlds import read_on
from support.kafka.world import KafkaWorld

from headgate.java.json import dumps
from headgate.ports import FencedError, TransportError
from headgate.task.partitioner import murmur2
from headgate.topics.offsets import encode_key, plan_reset
from headgate_kafka.admin.topics import TopicRefusedError
from headgate_kafka.logs.writing import PlainWriter
from headgate_kafka.task_transport import KafkaTaskTransport, open_task_transport
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.tasks.offsets import SourceOffsets
from headgate_runtime.worker.connector_offsets import ConnectorOffsets
from local_kafka.broker import Broker

A = b'["c",{"file":"a"}]'
B = b'["c",{"file":"b"}]'
TURNED = (b'["c",{"x":1,"y":2}]', b'["c",{"y":2,"x":1}]')
"""One source partition, in two orders of its names."""

Opened = Callable[..., KafkaTaskTransport]


@pytest.fixture
def world(kafka_world: KafkaWorld) -> KafkaWorld:
    return kafka_world


@pytest.fixture
def told() -> list[str]:
    """Return the warnings that an operator sees."""
    return []


@pytest.fixture
def task(world: KafkaWorld, told: list[str]) -> Iterator[Opened]:
    """Opens the log for connector `c`."""
    opened: list[KafkaTaskTransport] = []

    def open_it(
        config: Mapping[str, str] | None = None, *, exactly_once: bool = True
    ) -> KafkaTaskTransport:
        made = open_task_transport(
            world.properties,
            {"offsets.storage.topic": world.name("own")} if config is None else config,
            connector="c",
            kind="source",
            exactly_once=exactly_once,
            warn=told.append,
        )
        opened.append(made)
        return made

    yield open_it
    for made in opened:
        made.close()


def seen(log: Any) -> dict[bytes | None, bytes | None]:
    """Latest value of each key; tombstones too."""
    return {r.key: r.value for r in read_on(log)[0]}


def shown(transport: KafkaTaskTransport) -> dict[str, Any]:
    """Return the offsets as a user sees them: by the text of their source partition."""
    lines = transport.offset_view().partitions("c")
    return {str(dict(line.partition)): line.offset for line in lines}


def raw_own(world: KafkaWorld) -> dict[bytes | None, bytes | None]:
    log = world.connect().keyed_log(world.name("own"))
    found = seen(log)
    log.close()
    return found


def commit(task: KafkaTaskTransport, world: KafkaWorld, *records: tuple[bytes, Any]) -> None:
    """Commit source offsets, in a transaction or without one. Both ways exist."""
    producer = task.record_log.producer("p", world.name("g-c-0"), None)
    producer.init()
    producer.commit(records)
    producer.close()


def append(task: KafkaTaskTransport, world: KafkaWorld, *records: tuple[bytes, Any]) -> None:
    task.offset_log.append(records)


WRITES = pytest.mark.parametrize(("write", "exactly_once"), [(commit, True), (append, False)])


@WRITES
def test_its_own_topic_is_made_and_comes_first(
    world: KafkaWorld, task: Opened, write: Any, exactly_once: bool
) -> None:
    worker = world.connect()
    worker.offset_log.append([(A, b'{"n":1}'), (B, b'{"n":1}'), (b'["d",{}]', b'{"n":9}')])
    own = task(exactly_once=exactly_once)
    assert worker.record_log.partitions(world.name("own")) == 5  # offset.storage.partitions
    assert seen(own.offset_log) == {A: b'{"n":1}', B: b'{"n":1}'}
    write(own, world, (A, b'{"n":2}'))
    assert raw_own(world) == {A: b'{"n":2}'}
    assert seen(own.offset_log) == {A: b'{"n":2}', B: b'{"n":1}'}
    # A copy goes to the global topic; what comes there later counts for nothing.
    own._shared_writer.close()
    assert seen(worker.offset_log)[A] == b'{"n":2}'
    worker.offset_log.append([(A, b'{"n":7}'), (B, b'{"n":8}')])
    assert seen(own.offset_log) == {A: b'{"n":2}', B: b'{"n":8}'}
    assert seen(task(exactly_once=exactly_once).offset_log) == {A: b'{"n":2}', B: b'{"n":8}'}


@WRITES
def test_a_tombstone_uncovers_nothing(
    world: KafkaWorld, task: Opened, write: Any, exactly_once: bool
) -> None:
    worker = world.connect()
    worker.offset_log.append([(A, b'{"n":1}'), (B, b'{"n":1}')])
    own = task(exactly_once=exactly_once)
    write(own, world, (A, b'{"n":2}'))
    write(own, world, (A, None), (B, b'{"n":2}'))
    assert seen(own.offset_log).get(A) is None
    assert seen(task(exactly_once=exactly_once).offset_log).get(A) is None
    assert seen(worker.offset_log)[A] is None
    assert shown(own) == {"{'file': 'b'}": {"n": 2}}


@WRITES
def test_tombstones_are_in_the_global_topic_before_anything_else_happens(
    world: KafkaWorld,
    task: Opened,
    monkeypatch: pytest.MonkeyPatch,
    write: Any,
    exactly_once: bool,
) -> None:
    own = task(exactly_once=exactly_once)
    write(own, world, (A, b'{"n":2}'))
    before = raw_own(world)

    def fail(_writer: PlainWriter, topic: str, *_: Any) -> int:
        assert topic == world.properties["offset.storage.topic"]
        raise TransportError("out of reach")

    with monkeypatch.context() as broken:
        broken.setattr(PlainWriter, "append", fail)
        with pytest.raises(TransportError, match="out of reach"):
            write(own, world, (A, None), (B, b'{"n":3}'))
    assert raw_own(world) == before
    write(own, world, (A, None), (B, b'{"n":3}'))
    assert raw_own(world) == {A: None, B: b'{"n":3}'}


def test_a_partition_in_two_orders_of_its_names_is_one(world: KafkaWorld, task: Opened) -> None:
    worker = world.connect()
    worker.offset_log.append([(TURNED[0], b'{"n":1}')])
    own = task()
    assert seen(own.offset_log) == {TURNED[0]: b'{"n":1}'}
    commit(own, world, (TURNED[1], b'{"n":2}'))
    found = {key: value for key, value in seen(own.offset_log).items() if value is not None}
    assert found == {TURNED[1]: b'{"n":2}'}
    assert list(shown(own).values()) == [{"n": 2}]


@pytest.mark.parametrize("topic", ["own", "offsets"])
def test_of_two_orders_the_later_counts_whichever_is_read_first(
    world: KafkaWorld, task: Opened, topic: str
) -> None:
    """After Java's task and ours, two keys of a source partition lie in different partitions of the
    topic. For half of the source partitions one key is newer, for half the other. A reset leaves
    neither."""
    config = {"offsets.storage.topic": world.name(topic)}
    task(config)  # the topic is there
    written = Producer({"bootstrap.servers": world.servers, "partitioner": "murmur2_random"})
    partitions = [{"table": f"t{n}", "db": "x"} for n in range(24)]
    for number, partition in enumerate(partitions):
        turned = {name: partition[name] for name in reversed(partition)}
        keys = [dumps(["c", each]) for each in (partition, turned)]
        assert encode_key("c", partition) in keys
        for key, n in zip(keys, (100, 200) if number % 2 else (200, 100), strict=True):
            value = b'{"n":%d}' % n
            written.produce(world.name(topic), key=key, value=value, timestamp=1_000_000 + n)
    assert written.flush(15) == 0
    opened = task(config)
    offsets = SourceOffsets(opened.offset_log, "c")
    assert offsets.offsets(partitions) == [{"n": 200}] * 24
    assert list(shown(opened).values()) == [{"n": 200}] * 24
    writes = plan_reset(opened.offset_view(), "c")
    opened.offset_log.append((*writes.shared_tombstones, *writes.primary))
    assert offsets.offsets(partitions) == [None] * 24
    again = task(config)
    assert SourceOffsets(again.offset_log, "c").offsets(partitions) == [None] * 24
    log = world.connect().keyed_log(world.name(topic))
    assert list(seen(log).values()) == [None] * 48
    log.close()


def test_other_servers_mean_another_topic_under_exactly_once_alone(
    world: KafkaWorld, task: Opened
) -> None:
    """The same servers, written in another way, as one cluster is enough here."""
    port = world.servers.rpartition(":")[2]
    config = {"producer.override.bootstrap.servers": f"localhost:{port}"}
    assert "CombinedOffsetLog" in type(task(config).offset_log).__name__
    assert "KafkaKeyedLog" in type(task(config, exactly_once=False).offset_log).__name__
    plain = {"offsets.storage.topic": world.properties["offset.storage.topic"]}
    assert "KafkaKeyedLog" in type(task(plain).offset_log).__name__
    assert "KafkaKeyedLog" in type(task({}).offset_log).__name__


@pytest.mark.exhaustive
@pytest.mark.slow
def test_on_another_cluster_offsets_are_read_where_they_are_written(
    world: KafkaWorld, task: Opened, own_broker: Callable[..., Broker]
) -> None:
    """That holds also if only the producer's servers were overridden. Connect reads its own cluster
    then."""
    config = {"producer.override.bootstrap.servers": own_broker().address}
    world.connect().offset_log.append([(A, b'{"n":1}'), (B, b'{"n":1}')])
    own = task(config)
    assert seen(own.offset_log) == {A: b'{"n":1}', B: b'{"n":1}'}
    commit(own, world, (A, b'{"n":2}'))
    own._shared_writer.close()  # the copy is written
    world.connect().offset_log.append([(A, b'{"n":7}')])
    assert seen(task(config).offset_log) == {A: b'{"n":2}', B: b'{"n":1}'}


def test_offsets_are_where_java_looks_for_them(world: KafkaWorld, task: Opened) -> None:
    """Both writers use Java's default partitioner, so a key is in one partition alone."""
    own = task({})
    keys = [b'["c",{"n":%d}]' % n for n in range(20)]
    own.offset_log.append([(key, b"{}") for key in keys[:10]])
    commit(own, world, *((key, b"{}") for key in keys[10:]))
    topic = world.properties["offset.storage.topic"]
    seen(own.offset_log)  # to its end
    log = world.connect().record_log
    places = {r.key: p for p in range(5) for r in log.read(topic, p, 0, 1 << 40, 100)}
    assert places == {key: (murmur2(key) & 0x7FFFFFFF) % 5 for key in keys}


def test_an_instance_of_the_connector_reads_what_its_tasks_would(
    world: KafkaWorld, task: Opened
) -> None:
    """`ConnectorContext.offset_reader`, in its own topic and, without one, in the workers'."""
    shared = world.connect().offset_log
    shared.append([(A, b'{"n":1}'), (B, b'{"n":1}')])
    own = task()
    commit(own, world, (A, b'{"n":2}'))
    own._shared_writer.close()  # the copy is written
    shared.append([(A, b'{"n":7}')])
    settings = WorkerSettings.parse({"exactly.once.source.support": "enabled"})
    offsets = ConnectorOffsets(world.properties, settings, lambda _name, _commit: True)
    port = world.servers.rpartition(":")[2]
    for config, found in (
        ({"offsets.storage.topic": world.name("own")}, [{"n": 2}, {"n": 1}, None]),
        ({}, [{"n": 7}, {"n": 1}, None]),
        ({"producer.override.bootstrap.servers": f"localhost:{port}"}, [{"n": 7}, {"n": 1}, None]),
    ):
        reader = offsets.reader("c", config, shared)
        assert reader.offsets([{"file": "a"}, {"file": "b"}, {"file": "c"}]) == found
        assert reader.offset({"file": "a"}) == found[0]


def _client_threads() -> int:
    """Return the threads of the Kafka clients in this process."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return len([name for name in names if name.startswith("rdk:")])


@pytest.mark.parametrize("own_topic", [False, True])
def test_offsets_that_nobody_reads_are_not_fetched(
    world: KafkaWorld, task: Opened, own_topic: bool
) -> None:
    """With a hundred tasks, each commit would otherwise be sent to a hundred readers."""
    world.connect().offset_log.append([(A, b'{"n":1}')])
    log = task(None if own_topic else {}).offset_log
    log.end()
    reading = _client_threads()
    log.rest()
    assert _client_threads() < reading
    world.connect().offset_log.append([(B, b'{"n":2}')])
    assert seen(log) == {A: b'{"n":1}', B: b'{"n":2}'}


def test_a_task_keeps_no_offsets_of_others(world: KafkaWorld, task: Opened) -> None:
    world.connect().offset_log.append([(A, b'{"n":1}'), (b'["d",{}]', b'{"n":9}')])
    assert seen(task({}).offset_log) == {A: b'{"n":1}'}


def test_an_own_topic_that_loses_offsets_is_refused(world: KafkaWorld, task: Opened) -> None:
    world.connect().record_log.create_topic(world.name("own"), 1)  # cleanup.policy=delete
    with pytest.raises(TopicRefusedError, match=r"offsets\.storage\.topic.*cleanup\.policy"):
        task()


def test_a_fenced_task_writes_no_copies_either(world: KafkaWorld, task: Opened) -> None:
    own = task()
    producer = own.record_log.producer("p", world.name("g-c-0"), None)
    producer.init()
    own.fencer.fence([world.name("g-c-0")])
    with pytest.raises(FencedError):
        producer.commit([(A, b'{"n":1}')])
    own._shared_writer.close()
    assert seen(world.connect().offset_log) == {}
    assert raw_own(world) == {}


@pytest.mark.parametrize(("own_ms", "stale"), [(1_000_000, True), (2_000_000, False)])
def test_an_own_topic_that_is_older_than_the_global_one_is_named(
    task: Opened, world: KafkaWorld, told: list[str], own_ms: int, stale: bool
) -> None:
    """That happens on the way back to exactly-once. The tasks would go back to old offsets."""
    own = task()
    own.offset_log.end()
    written = Producer({"bootstrap.servers": world.properties["bootstrap.servers"]})
    written.produce(world.name("own"), key=A, value=b'{"n":1}', timestamp=own_ms)
    written.produce(
        world.properties["offset.storage.topic"], key=A, value=b'{"n":2}', timestamp=2_030_000
    )
    written.flush(15)
    told.clear()
    again = task()
    assert list(seen(again.offset_log).values()) == [b'{"n":1}']
    again.offset_log.end()
    again.offset_log.end()
    assert len([line for line in told if "1030 s older" in line and world.name("own") in line]) == (
        1 if stale else 0
    )
