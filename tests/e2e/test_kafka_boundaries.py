"""Where the transactions of a source (`transaction.boundary`) and of the leader end.

The tests look at the batches as the broker keeps them, with the markers that no consumer shows.
"""

import contextlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic, read_committed
from support.kafka.raw_log import Transaction, transactions_in
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate.topics.offsets import decode_value
from headgate_kafka.group.describe import GroupDescriber

pytestmark = pytest.mark.slow

OFFSET_PARTITIONS = 2
INTERVAL_MS = 700
BATCH = 10
SIZE = 7
"""Numbers of a transaction of the connector's own: they end within batches, and span two."""
CLOCK_MS = 50
"""The task measures on a clock that nobody sets; records are stamped by the other."""


class Source:
    """Connector `c`, one task, and what its transactions have left."""

    def __init__(self, worker: KafkaWorker, address: str, group: str) -> None:
        self.worker = worker
        self.address = address
        self.group = group
        self.topic = f"{group}-t"
        create_topic(address, self.topic)

    def create(self, boundary: str, **more: str) -> None:
        config = {
            "connector.class": "support.task.connectors:BoundarySource",
            "tasks.max": "1",
            "topic": self.topic,
            "batch": str(BATCH),
            "transaction.boundary": boundary,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        reply = self.worker.rest.create("c", config)
        assert reply.status == 201, reply

    def stop(self) -> None:
        assert self.worker.rest.put("/connectors/c/stop").status == 204
        self.worker.rest.await_tasks("c", [], 20)

    def data(self) -> list[Transaction]:
        """Return the data transactions by their ends. A marker comes a moment after the producer's
        answer."""
        return transactions_in(self.address, self.topic)

    def offsets(self) -> list[Transaction]:
        """All of `c` are in one partition: it has one source partition, so one key."""
        found = transactions_in(self.address, f"{self.group}-offsets", OFFSET_PARTITIONS)
        assert len({key for each in found for key in each.keys}) <= 1
        return found

    def await_ended(self, count: int, what: Callable[[], list[Transaction]]) -> None:
        def ended() -> bool:
            return sum(bool(each.end) for each in what()) >= count

        await_true(f"{count} transactions", ended, 30, lambda: str(what()))


@pytest.fixture
def source(tmp_path: Path, kafka_broker: Found, kafka_name: str) -> Iterator[Source]:
    address = kafka_broker.address
    with kafka_worker(tmp_path, address, kafka_name) as worker:
        yield Source(worker, address, kafka_name)


def numbers(transaction: Transaction) -> list[int]:
    return [int(value or b"") for value in transaction.values]


def following(transaction: Transaction) -> list[int]:
    """Return the next number, by the offset records of the transaction."""
    return [int((decode_value(value) or {})["next"]) for value in transaction.values]


def check_pairs(data: list[Transaction], offsets: list[Transaction]) -> None:
    """Check committed transactions. Records and their one offset have one producer and epoch, stand
    before the marker, and the offset is that of the last record."""
    assert len(data) == len(offsets)
    assert len({each.producer for each in (*data, *offsets)}) == 1
    assert {each.end for each in (*data, *offsets)} == {"commit"}
    for records, offset in zip(data, offsets, strict=True):
        assert following(offset) == [numbers(records)[-1] + 1]


@pytest.mark.exhaustive
def test_a_poll_is_a_transaction(source: Source) -> None:
    polls = 5
    source.create("poll", limit=str(polls * BATCH))
    source.await_ended(polls, source.data)
    source.await_ended(polls, source.offsets)
    source.stop()  # it has polled in vain since: of nothing no transaction is made
    data, offsets = source.data(), source.offsets()
    assert [numbers(each) for each in data] == [
        list(range(n * BATCH, (n + 1) * BATCH)) for n in range(polls)
    ]
    check_pairs(data, offsets)


@pytest.mark.exhaustive
def test_a_transaction_ends_with_the_first_poll_after_the_interval(source: Source) -> None:
    """The interval is `transaction.boundary.interval.ms`, not the minute between the worker's
    flushes."""
    wanted = 4
    source.create("interval", transaction_boundary_interval_ms=str(INTERVAL_MS), pause_s="0.05")
    source.await_ended(wanted, source.data)
    source.await_ended(wanted, source.offsets)
    source.stop()
    data = source.data()
    offsets = source.offsets()
    check_pairs(data, offsets)
    assert [n for each in data for n in numbers(each)] == list(range(numbers(data[-1])[-1] + 1))
    commits_ms = [each.records[0].timestamp_ms for each in offsets[:wanted]]
    for before_ms, now_ms in pairwise(commits_ms):
        assert now_ms - before_ms >= INTERVAL_MS - CLOCK_MS
    for each in data[:wanted]:
        polls_ms = [record.timestamp_ms for record in each.records][::BATCH]
        assert len(each.records) % BATCH == 0
        assert len(polls_ms) > 1, "no batch but the first: polls are too slow"
        assert polls_ms[-2] - polls_ms[0] < INTERVAL_MS + CLOCK_MS, "it was due before"


def test_a_transaction_ends_where_the_connector_says(source: Source) -> None:
    """A transaction may end within a batch. No reader sees what the connector aborts, and the
    offsets go on after it in a transaction of their own. A transaction that is open at the stop is
    aborted, offsets included."""
    limit = 6 * SIZE + 3
    source.create("connector", limit=str(limit), size=str(SIZE), abort_every="3")
    source.await_ended(6, source.data)
    await_true("rest", lambda: numbers(source.data()[-1])[-1] == limit - 1, 20)
    assert source.data()[-1].end == ""
    source.stop()
    source.await_ended(7, source.data)
    data, offsets = source.data(), source.offsets()
    assert [numbers(each) for each in data] == [
        *(list(range(n * SIZE, (n + 1) * SIZE)) for n in range(6)),
        list(range(6 * SIZE, limit)),
    ]
    assert [each.end for each in data] == [*["commit", "commit", "abort"] * 2, "abort"]
    assert [following(each) for each in offsets] == [[n * SIZE] for n in range(1, 7)]
    aborted = (2, 5)
    check_pairs(
        [each for each in data if each.end == "commit"],
        [each for n, each in enumerate(offsets) if n not in aborted],
    )
    assert {offsets[n].end for n in aborted} == {"commit"}
    assert {each.producer for each in offsets} == {data[0].producer} == {data[-1].producer}
    seen = [int(value) for _, value in read_committed(source.address, source.topic)]
    assert seen == [n for n in range(6 * SIZE) if n // SIZE not in aborted]
    check_resumed(source, limit)


def check_resumed(source: Source, limit: int) -> None:
    """A resumed task begins with the records of the open transaction, after those that it had
    aborted."""
    assert source.worker.rest.put("/connectors/c/resume").status == 202
    rest = list(range(6 * SIZE, limit))
    await_true("rest", lambda: numbers(source.data()[-1]) == rest and not source.data()[-1].end, 20)


# -- the leader's --

TASKS = 100
TASK_KEYS = [f"task-c-{n}" for n in range(TASKS)]
WRITES = {
    "headgate": [["connector-c", *TASK_KEYS, "commit-c"]],
    "compatible": [TASK_KEYS, ["commit-c"]],
}
"""What of task configs is written together, by the group's protocol."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("protocol", WRITES)
def test_a_hundred_task_configs_are_one_transaction_and_as_java_writes_them_two(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, protocol: str
) -> None:
    """Tasks wait at the gate of their fencing: none of the hundred runs."""
    address = kafka_broker.address
    limit = {"connect_protocol": protocol} if protocol == "compatible" else {}
    config = {"connector.class": "support.task.connectors:CountingSource", "limit": "0"}

    def written() -> list[list[str]]:
        found = transactions_in(address, f"{kafka_name}-configs")
        assert len({each.producer for each in found}) == 1
        assert {each.end for each in found} <= {"commit", ""}
        return [each.keys for each in found if each.end]

    with kafka_worker(tmp_path, address, kafka_name, **limit) as worker:
        with contextlib.closing(GroupDescriber({"bootstrap_servers": [address]})) as describer:
            assert describer.describe(kafka_name).protocol == protocol
        assert worker.rest.create("c", {**config, "tasks.max": "1"}).status == 201
        worker.rest.await_tasks("c", ["RUNNING"], 30)
        worker.fencer.gate.clear()
        before = len(written())
        more = {**config, "tasks.max": str(TASKS)}
        assert worker.rest.put("/connectors/c/config", more).status == 200
        await_true("commit", lambda: written()[-1][-1:] == ["commit-c"], 30, lambda: str(written()))
        changed, *rest = written()[before:]
        assert changed == ["connector-c"]
        assert rest == WRITES[protocol]
        assert worker.rest.put("/connectors/c/stop").status == 204
