"""The stories of KIP-618, told to real workers on a real broker.

F is a task that has not heard that it must stop: a producer under a task's transactional id, with
an open transaction. L leads, and O runs the tasks that come after.
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import (
    KafkaCluster,
    KeptWorker,
    await_true,
    create_topic,
    has_open_transaction,
    producer_epoch,
    quick_properties,
    read_committed,
)
from support.kafka.held_port import HeldPort
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate.herder.messages import ErrorKind, Failure, FenceConnector
from headgate.ports import FencedError, Producer, ProducerRecord
from headgate.topics.offsets import encode_key, encode_value
from headgate_kafka.transport import open_transport
from local_kafka.java_connect import Reply

pytestmark = pytest.mark.slow

FILES = 4
LINES = 50


class Story:
    """A group, a directory that connector `c` reads into topic `t`, and what the topics tell."""

    def __init__(self, folder: Path, address: str, group: str) -> None:
        self.folder = folder
        self.address = address
        self.group = group
        self.topic = f"{group}-t"
        create_topic(address, self.topic)
        self.written: list[str] = []
        (folder / "in").mkdir()
        for number in range(FILES):
            self.write(number)

    def write(self, number: int) -> None:
        lines = [f"{number}.{n}" for n in range(LINES)]
        self.written += lines
        text = "".join(f"{line}\n" for line in lines)
        (self.folder / "in" / f"{number}.txt").write_text(text)

    @contextlib.contextmanager
    def worker(self, name: str, **more: str) -> Iterator[KafkaWorker]:
        with kafka_worker(self.folder / name, self.address, self.group, **more) as made:
            yield made

    def config(self, tasks: int, **more: str) -> dict[str, str]:
        return {
            "connector.class": "DirectorySource",
            "path": str(self.folder / "in"),
            "topic": self.topic,
            "tasks.max": str(tasks),
            **more,
        }

    def put(self, worker: KafkaWorker, config: dict[str, str]) -> None:
        reply = worker.rest.put("/connectors/c/config", config)
        assert reply.status in (200, 201), reply

    def await_running(self, worker: KafkaWorker, tasks: int) -> None:
        worker.rest.await_tasks("c", ["RUNNING"] * tasks, 30)

    def stuck(self, worker: KafkaWorker, task: int) -> Producer:
        """F: has taken the id of the task and sent a record, and does not go on."""
        transport = worker.task_transport("c", self.config(1))
        producer = transport.record_log.producer("f", f"{self.group}-c-{task}", None)
        producer.init()
        producer.send([ProducerRecord(self.topic, 0, None, b"of a zombie")])
        await_true("its record", lambda: has_open_transaction(self.address, self.topic), 10)
        return producer

    def refused(self, producer: Producer) -> None:
        """Assert that the commit is refused, and that no reader ever sees the transaction."""
        with pytest.raises(FencedError):
            producer.commit([(encode_key("c", {"file": "0.txt"}), encode_value({"position": 1}))])
        producer.close()
        assert b"of a zombie" not in self.values()

    def values(self) -> list[bytes]:
        return [value for _, value in read_committed(self.address, self.topic)]

    def delivered(self) -> None:
        """All that was written, once."""
        wanted = sorted(line.encode() for line in self.written)
        await_true("whole input", lambda: len(self.values()) >= len(wanted), 20)
        assert sorted(self.values()) == wanted

    def config_log(self) -> list[tuple[str, Any]]:
        found = read_committed(self.address, f"{self.group}-configs")
        return [(k.decode(), None if v is None else json.loads(v)) for k, v in found]

    def after_last_commit(self) -> list[Any]:
        """The task count records of `c` behind its last commit."""
        log = self.config_log()
        last = max(n for n, (key, _) in enumerate(log) if key == "commit-c")
        return [value for key, value in log[last:] if key == "tasks-fencing-c"]


@pytest.fixture
def story(tmp_path: Path, kafka_broker: Found, kafka_name: str) -> Story:
    return Story(tmp_path, kafka_broker.address, kafka_name)


def test_a_blocked_task_is_shut_out_before_the_next_tasks_start(story: Story) -> None:
    """F is stopped in its transaction; O's tasks start only after the fencing; F's commit is
    refused."""
    with story.worker("l") as l_worker, story.worker("o") as o_worker:
        story.put(o_worker, story.config(2))
        story.await_running(o_worker, 2)
        assert o_worker.rest.put("/connectors/c/stop").status == 204
        o_worker.rest.await_tasks("c", [], 20)
        blocked = story.stuck(o_worker, 1)
        leader = next(w for w in (l_worker, o_worker) if w.leads)
        leader.fencer.gate.clear()
        leader.fencer.asked.clear()
        assert o_worker.rest.put("/connectors/c/resume").status == 202
        await_true("round of fencing", lambda: leader.fencer.asked, 20)
        with pytest.raises(TimeoutError):
            o_worker.rest.await_tasks("c", ["RUNNING"] * 2, 2)
        assert story.after_last_commit() == []
        leader.fencer.gate.set()
        story.await_running(o_worker, 2)
        assert leader.fencer.asked == [(f"{story.group}-c-0", f"{story.group}-c-1")]
        assert story.after_last_commit() == [{"task-count": 2}]
        story.refused(blocked)
        story.write(FILES)
        story.delivered()


@pytest.mark.exhaustive
def test_reconfiguration_overtakes_a_round_of_fencing(story: Story) -> None:
    """The round is about task configs that are no longer in force. Its caller is told so, its count
    is never written, and the next round is right."""
    with story.worker("l") as leader, story.worker("o") as other:
        assert leader.leads
        story.put(leader, story.config(2))
        story.await_running(leader, 2)
        leader.fencer.gate.clear()
        leader.fencer.asked.clear()
        story.put(leader, story.config(3))
        await_true("round of fencing", lambda: leader.fencer.asked, 20)
        answers: list[Any] = []

        def ask() -> None:
            peers = other.worker.transport.peers
            answers.append(peers.call(leader.url, FenceConnector("c"), 1, 30_000))

        asking = threading.Thread(target=ask)
        asking.start()
        await_true("its tasks' requests", lambda: leader.pending, 10)
        story.put(leader, story.config(1))
        asking.join(30)
        [answer] = answers
        assert isinstance(answer, Failure)
        assert answer.kind is ErrorKind.CONFLICT
        assert "a new set of task configs" in answer.message
        await_true("next round", lambda: len(leader.fencer.asked) > 1, 20)
        assert story.after_last_commit() == []
        leader.fencer.gate.set()
        story.await_running(leader, 1)
        ids = (f"{story.group}-c-0", f"{story.group}-c-1")
        assert leader.fencer.asked == [ids, ids]
        counts = [value for key, value in story.config_log() if key == "tasks-fencing-c"]
        assert counts == [{"task-count": 2}, {"task-count": 1}]
        story.delivered()


@pytest.mark.exhaustive
def test_one_task_after_one_task_costs_no_round(story: Story) -> None:
    """The new producer shuts out the old one itself."""
    with story.worker("l") as leader:
        story.put(leader, story.config(1))
        story.await_running(leader, 1)
        blocked = story.stuck(leader, 0)
        story.put(leader, story.config(1, **{"batch.size": "7"}))
        await_true("new count", lambda: len(story.after_last_commit()) == 1, 20)
        story.await_running(leader, 1)
        counts = [value for key, value in story.config_log() if key == "tasks-fencing-c"]
        assert counts == [{"task-count": 1}] * 2
        assert leader.fencer.asked == []
        story.refused(blocked)
        story.delivered()


@pytest.mark.exhaustive
def test_a_connector_of_the_same_name_shuts_out_its_forerunner(story: Story) -> None:
    """The task count record of the deleted connector outlives it."""
    with story.worker("l") as leader:
        story.put(leader, story.config(2))
        story.await_running(leader, 2)
        story.delivered()
        assert leader.rest.delete("/connectors/c").status == 204
        await_true("end of its tasks", lambda: not leader.worker.herder.view().tasks, 20)
        blocked = story.stuck(leader, 1)
        leader.fencer.asked.clear()
        story.put(leader, story.config(1))
        story.await_running(leader, 1)
        assert leader.fencer.asked == [(f"{story.group}-c-0", f"{story.group}-c-1")]
        assert story.after_last_commit() == [{"task-count": 1}]
        story.refused(blocked)
        story.delivered()  # its source offsets outlive it too


@pytest.mark.exhaustive
def test_a_leader_that_was_shut_out_writes_nothing_and_claims_again(story: Story) -> None:
    """Another client has the leader's transactional id. The refused write is not in the log, and
    the next request is served. In Java some ways of writing never claimed again."""
    with story.worker("l") as leader:
        story.put(leader, story.config(1))
        story.await_running(leader, 1)
        other_config = story.config(1, path=str(story.folder / "nothing"))
        for request in (
            lambda: leader.rest.put("/connectors/c/config", story.config(2)),
            lambda: leader.rest.post(
                "/connectors/c/restart?includeTasks=true"
            ),  # Java: never again
            lambda: leader.rest.patch("/connectors/c/config", {"batch.size": "7"}),
            lambda: leader.rest.create("d", other_config),
            lambda: leader.rest.put("/connectors/c/stop"),
            lambda: leader.rest.delete("/connectors/d"),
            lambda: leader.rest.delete("/connectors/c"),
        ):
            other = open_transport(leader.worker.config.transport)
            other.config_log.claim(99)
            before = story.config_log()
            reply = request()
            if reply.status >= 400:
                assert [r for r in story.config_log() if r not in before] == []
                await_true("another answer", lambda r=request: r().status < 300, 20)
            # Now the intruder is shut out.
            with pytest.raises(FencedError):
                other.config_log.append([("connector-x", b"{}")], privileged=True)
            other.close()
        assert not any(key == "connector-x" for key, _ in story.config_log())
        assert story.config_log()[-1][1] is None, "the connector was deleted last"


def test_a_leader_that_was_frozen_writes_nothing_over_the_next_one(
    kafka_broker: Found,
    kafka_name: str,
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
) -> None:
    """The leader reads a request when it wakes up, and may still believe that it leads. Either the
    next leader writes the change, or no worker does."""
    more = {"session.timeout.ms": "6000", "headgate.task.runner": "thread"}
    cluster = kafka_cluster(kafka_broker.address, kafka_name, 2, quick_properties(**more))
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "none.txt"),
        "topic": f"{kafka_name}-t",
        "tasks.max": "1",
    }
    cluster.create("c", config)
    await_true("RUNNING", lambda: cluster.running("c", 1), 60, cluster.tail)
    [old] = [worker for worker in cluster.workers if worker.leads]
    [new] = [worker for worker in cluster.workers if worker is not old]
    process = old.worker()
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    replies: list[Reply] = []
    leaders = f"connect-cluster-{kafka_name}"

    def ask() -> None:
        replies.append(old.rest.put("/connectors/c/config", {**config, "batch.size": "7"}))

    asking = threading.Thread(target=ask)
    try:
        asking.start()  # the kernel takes it for the frozen process
        await_true("next leader", lambda: new.leads, 30, cluster.tail)
        cluster.workers.remove(old)
        cluster.create("c", {**config, "batch.size": "8"})
        claim = producer_epoch(kafka_broker.address, leaders)
        asked = changes_asked(new)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    asking.join(100)
    cluster.workers.append(old)
    [reply] = replies
    await_true("RUNNING", lambda: cluster.running("c", 1), 60, cluster.tail)
    log = read_committed(kafka_broker.address, f"{kafka_name}-configs")
    written = [json.loads(value or b"{}") for key, value in log if key == b"connector-c"]
    sizes = [each["properties"].get("batch.size") for each in written]
    sizes = [size for n, size in enumerate(sizes) if n == 0 or size != sizes[n - 1]]
    assert sizes == ([None, "8", "7"] if reply.status == 200 else [None, "8"]), reply
    assert new.leads
    assert not old.leads
    assert producer_epoch(kafka_broker.address, leaders) == claim, "the old leader claimed again"
    if reply.status == 200:
        assert changes_asked(new) == asked + 1, "the old leader has written it itself"


@pytest.mark.exhaustive
def test_a_round_of_a_leader_that_is_killed_in_it_is_run_again(
    story: Story, kafka_cluster: Callable[..., KafkaCluster]
) -> None:
    """The connector's admin client reaches the broker by a port that is shut. So the leader hangs
    in the round, and tasks of the other worker wait for it. The next leader begins it again."""
    with contextlib.closing(HeldPort(story.address)) as port:
        more = {"session.timeout.ms": "6000", "headgate.task.runner": "thread"}
        properties = quick_properties(**more)
        cluster = kafka_cluster(story.address, story.group, 2, properties)
        config = story.config(FILES, **{"admin.override.bootstrap.servers": port.address})
        cluster.create("c", config)
        await_true("RUNNING", lambda: cluster.running("c", FILES), 60, cluster.tail)
        story.delivered()
        [old] = [worker for worker in cluster.workers if worker.leads]
        [new] = [worker for worker in cluster.workers if worker is not old]
        port.shut()
        cluster.create("c", {**config, "batch.size": "7"})
        story.write(FILES)  # while nobody reads
        await_true("round of fencing", lambda: fencings(old) and port.held, 30, cluster.tail)
        await_true("waiting tasks", lambda: "awaiting fencing" in pending(new), 30, cluster.tail)
        old.kill()
        assert fencings(new) == 0
        assert story.after_last_commit() == [], "the round was over: no proof"
        port.open()
        await_true("next round", lambda: fencings(new) == 1, 60, cluster.tail)
        await_true("RUNNING", lambda: cluster.running("c", FILES), 60, cluster.tail)
        assert new.leads
        assert story.after_last_commit() == [{"task-count": FILES}]
        story.delivered()


def changes_asked(worker: KeptWorker) -> int:
    """Return how often users or other workers asked the worker for another config of `c`."""
    lines = worker.log.read_text().splitlines()
    return sum(" asked " in line and line.endswith(": config of connector c") for line in lines)


def fencings(worker: KeptWorker) -> int:
    """Return how often the worker has begun to fence the producers of all tasks of `c`."""
    return worker.log.read_text().count(f"fencing {FILES} producers of c")


def pending(worker: KeptWorker) -> str:
    return str(worker.view()["pending"])


@pytest.mark.exhaustive
def test_an_open_transaction_of_a_dead_task_keeps_nobody_for_long(story: Story) -> None:
    """The transaction is at the end of the offsets topic, so readers of offsets wait. A worker
    still starts, and fencing ends the wait long before the transaction times out."""
    with story.worker("l") as leader:
        story.put(leader, story.config(2))
        story.await_running(leader, 2)
        assert leader.rest.put("/connectors/c/stop").status == 204
        leader.rest.await_tasks("c", [], 20)
        zombie = leader.task_transport("c", story.config(1))
        producer = zombie.record_log.producer("f", f"{story.group}-c-1", None)
        producer.init()
        key = encode_key("c", {"file": "0.txt"})
        producer.send([ProducerRecord(f"{story.group}-offsets", None, key, b'{"position":0}')])
        topic = f"{story.group}-offsets"
        await_true("open transaction", lambda: has_open_transaction(story.address, topic, 2), 10)
        began = time.monotonic()
        with story.worker("late") as late:
            reply = late.rest.get("/connectors/c/status")
            assert reply.status == 200, reply
            assert late.rest.put("/connectors/c/resume").status == 202
            story.await_running(late, 2)
            assert time.monotonic() - began < 40, "as long as transaction.timeout.ms nearly"
            story.refused(producer)
            story.delivered()
        zombie.close()
