"""`headgate standalone` and Java's run one after the other on the same file of source offsets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.standalone import SOURCE_FILE, WORKER, Standalone, until
from support.kafka.broker import Found
from support.kafka.cluster import create_topic, end_offset, read_committed

from local_kafka.java_connect import HEAP_MB, Rest
from local_kafka.jvm import Jvm

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
LINES = 100


class Relay:
    """One source of lines that one worker runs after another."""

    def __init__(self, folder: Path, servers: str, topic: str) -> None:
        self.ours = Standalone(folder, servers, topic)
        self.java = Jvm(folder, "java", [MAIN, WORKER, SOURCE_FILE], heap_mb=HEAP_MB)
        self._written = 0
        self._servers, self._topic = servers, topic

    def write_lines(self) -> None:
        with self.ours.input.open("a") as file:
            for number in range(self._written, self._written + LINES):
                file.write(f"line {number}\n")
        self._written += LINES

    def sent(self) -> list[bytes]:
        return [value for _, value in read_committed(self._servers, self._topic)]

    def expected(self) -> list[bytes]:
        return [b"line %d" % number for number in range(self._written)]

    def await_lines(self, rest: Rest) -> None:
        """All that were written are in the topic, and their offset is known to the worker. Its file
        is not read meanwhile: Java's is in the middle of a write at times."""
        until("the lines", lambda: end_offset(self._servers, self._topic) >= self._written)
        end = {"position": self.ours.input.stat().st_size}
        path = f"/connectors/{self.ours.source['name']}/offsets"
        until(
            "their offset",
            lambda: [each["offset"] for each in rest.get(path).body["offsets"]] == [end],
        )

    def restarts(self, rest: Rest) -> list[tuple[int, Any]]:
        """Return the answers to restarts of what runs."""
        name = self.ours.source["name"]
        answers = []
        for what in ("restart?includeTasks=true", "tasks/0/restart", "restart"):
            rest.await_tasks(name, ["RUNNING"])
            reply = rest.post(f"/connectors/{name}/{what}")
            answers.append((reply.status, unnamed(reply.body)))
        return answers


def unnamed(body: Any) -> Any:
    """Return a status without the worker's name and the connectors' version."""
    if isinstance(body, dict):
        own = ("worker_id", "version")
        return {key: unnamed(value) for key, value in body.items() if key not in own}
    return [unnamed(each) for each in body] if isinstance(body, list) else body


@pytest.fixture
def relay(kafka_broker: Found, kafka_name: str, tmp_path: Path) -> Iterator[Relay]:
    create_topic(kafka_broker.address, kafka_name)
    made = Relay(tmp_path, kafka_broker.address, kafka_name)
    made.ours.properties["plugin.discovery"] = "service_load"
    yield made
    made.java.kill()
    if made.ours.process is not None and made.ours.process.poll() is None:
        made.ours.process.kill()
        made.ours.process.communicate()


def test_either_goes_on_where_the_other_stopped(relay: Relay) -> None:
    answers = []
    for ours in (True, False, True):
        relay.write_lines()
        if ours:
            relay.ours.start([SOURCE_FILE])
        else:
            relay.java.start(lambda: True)
        with Rest(relay.ours.url) as rest:
            relay.await_lines(rest)
            answers.append(relay.restarts(rest))
        if ours:
            assert relay.ours.stop()[0] == 0
        else:
            relay.java.stop()
        assert relay.sent() == relay.expected()
    assert [status for status, _ in answers[0]] == [202, 204, 204]
    assert answers[0] == answers[1] == answers[2]
