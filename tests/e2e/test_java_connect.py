"""The Java workers and programs on which other tests rely."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.partitioner.default import murmur2
from support.java import connect as support
from support.java.connect import FoundWorker
from support.kafka.broker import Found

from local_kafka.java_connect import SINK, SOURCE, JavaWorker, Reply, Rest
from local_kafka.jvm import JvmError, compile_java

pytestmark = pytest.mark.slow
STATE_S = 60.0
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


@pytest.mark.exhaustive
def test_two_workers_share_what_one_leaves_when_it_is_killed(
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    tmp_path: Path,
) -> None:
    settings = {
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "offset.flush.interval.ms": "500",
        "consumer.session.timeout.ms": "6000",
    }
    first, second = (java_worker(kafka_broker.address, kafka_name, settings) for _ in range(2))
    given, taken = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("a\nb\n")
    common = {"tasks.max": "1", "value.converter": CONVERTER}
    source = {"connector.class": SOURCE, "file": str(given), "topic": kafka_name, **common}
    assert first.rest.create("src", source).status == 201
    sink = {"connector.class": SINK, "file": str(taken), "topics": kafka_name, **common}
    assert second.rest.create("out", sink).status == 201
    for name in ("src", "out"):
        first.rest.await_tasks(name, ["RUNNING"])
    assert values(kafka_broker.address, kafka_name, 2) == [b"a", b"b"]
    # What a sink has written and not committed comes again.
    for name, end in (("src", {"position": 4}), ("out", {"kafka_offset": 2})):
        first.rest.await_reply(
            partial(first.rest.get, f"/connectors/{name}/offsets"),
            lambda reply, end=end: [each["offset"] for each in reply.body["offsets"]] == [end],
            STATE_S,
        )
    first.kill()
    mine = second.url.removeprefix("http://")
    second.rest.await_reply(
        lambda: second.rest.status("src"),
        lambda reply: (
            reply.status == 200
            and [(task["state"], task["worker_id"]) for task in reply.body["tasks"]]
            == [("RUNNING", mine)]
        ),
        STATE_S,
    )
    with given.open("a") as file:
        file.write("c\n")
    assert values(kafka_broker.address, kafka_name, 3) == [b"a", b"b", b"c"]
    second.rest.await_reply(
        lambda: Reply(200, taken.read_text()), lambda lines: lines.body == "a\nb\nc\n", STATE_S
    )


def values(address: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, STATE_S)]
    consumer.close()
    return found


@pytest.mark.exhaustive
def test_a_frozen_worker_goes_on_when_it_is_thawed(
    kafka_broker: Found, kafka_name: str, java_worker: Callable[..., JavaWorker]
) -> None:
    worker = java_worker(kafka_broker.address, kafka_name)
    worker.freeze()
    state = Path(f"/proc/{worker.jvm.pid}/stat")
    if state.exists():
        assert state.read_text().rpartition(")")[2].split()[0] == "T"
    worker.thaw()
    assert worker.rest.get("/connectors").body == []
    worker.freeze()
    worker.stop()  # in spite of that
    # Not "stopped": its Jetty may wait longer than `stop` does for a connection that it left open.
    assert "Kafka Connect stopping" in worker.jvm.log_file.read_text()


@pytest.mark.exhaustive
def test_the_worker_in_the_environment_comes_first(
    java_connect: FoundWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(support.ADDRESS, f"{java_connect.url}/")
    with support.find_worker(tmp_path, lambda: pytest.fail("a broker was asked for")) as found:
        assert (found.url, found.origin) == (java_connect.url, "environment")
        assert found.rest.get("/connectors").body == []
    assert not any(tmp_path.iterdir())


@pytest.mark.exhaustive
def test_a_worker_that_nothing_can_be_compared_with_is_refused(
    java_connect: FoundWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, url = java_connect.rest, java_connect.url
    with (
        Rest("http://127.0.0.1:1") as nobody,
        pytest.raises(RuntimeError, match=r"no Connect worker answers at http://127\.0\.0\.1:1 "),
    ):
        support.await_worker(nobody, "http://127.0.0.1:1", timeout_s=0.5)
    body = {"name": "mine", "config": {"connector.class": SOURCE, "topic": "t", "file": "/x"}}
    assert rest.post("/connectors", {**body, "initial_state": "STOPPED"}).status == 201
    with pytest.raises(RuntimeError, match=r"has connectors: mine"):
        support.await_worker(rest, url)
    assert rest.delete("/connectors/mine").status == 204
    rest.await_reply(lambda: rest.get("/connectors"), lambda reply: reply.body == [], STATE_S)
    # A worker of another version, or none of Java's: it would be itself that it is compared with.
    monkeypatch.setattr(support, "version", lambda: "0.0")
    with pytest.raises(RuntimeError, match=r"is Connect \d.*; tests compare with Java's 0\.0"):
        support.await_worker(rest, url)


def test_a_worker_that_ends_shows_its_log(tmp_path: Path) -> None:
    worker = JavaWorker(
        tmp_path, {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "key.converter": "no.Such"}
    )
    with pytest.raises(JvmError, match=r"(?s)the worker ended .*key\.converter"):
        worker.start()


@pytest.mark.parametrize("key", ["", "a", "orders-17", "ключ", "𝄞 outside the BMP"])
def test_a_program_answers_line_by_line(
    java_program: Callable[..., "Popen[str]"], key: str
) -> None:
    java = java_program("PartitionOfKey", "1000")
    assert java.stdin is not None and java.stdout is not None
    for _ in range(2):
        java.stdin.write(f"{key}\n")
        java.stdin.flush()
        expected = (murmur2(key.encode()) & 0x7FFFFFFF) % 1000
        assert java.stdout.readline() == f"{expected} {key}\n"
    java.stdin.close()
    assert java.wait(10) == 0


def test_a_program_that_is_wrong_says_where(tmp_path: Path) -> None:
    wrong = tmp_path / "Wrong.java"
    wrong.write_text("class Wrong { int x = missing; }\n")
    with pytest.raises(JvmError, match=r"(?s)Wrong\.java.*missing cannot be resolved"):
        compile_java(wrong, tmp_path)
