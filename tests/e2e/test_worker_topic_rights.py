"""A worker that may not read, write or create one of its internal topics names the operation, the
topic and its principal. It goes on when it gets the right."""

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import javaproperties
import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType  # type: ignore[attr-defined]
from support.commands.observing import changing_nothing, observed
from support.commands.worker import HeadgateWorker, headgate
from support.depth import first
from support.kafka.cluster import await_true
from support.kafka.rights import (
    PASSWORD,
    RIGHTS,
    TOPICS,
    USER,
    allow,
    forbid,
    make_topics,
    properties,
    security_of,
    with_login,
)

from headgate_rest.peer import TIMEOUT_HEADER
from local_kafka.broker import Broker
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow
SECONDS = 30
OF_A_TOPIC = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


class Refused:
    """A worker that runs a source, on a broker that can take its rights away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        users = {USER: PASSWORD, "watcher": PASSWORD}
        self.broker = Broker(folder / "broker", users=users)
        self._worker: HeadgateWorker | None = None
        self._lines = 0

    def start(self) -> None:
        self.broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.address})
        make_topics(self.admin)
        allow(self.admin, *RIGHTS)
        given = {**with_login(self.broker), **QUICK, "headgate.task.runner": "thread"}
        del given["listeners"]  # it has its own, where it is asked
        self._worker = HeadgateWorker(self.folder / "worker", given)
        self.worker.start()
        self.add_line()
        self.await_change()
        # What is denied later is there to be read.
        await_true("offset", lambda: '"position"' in self.offsets(), SECONDS, self.worker.tail)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self.broker.close()

    @property
    def worker(self) -> HeadgateWorker:
        assert self._worker is not None
        return self._worker

    @contextlib.contextmanager
    def without(self, operation: AclOperation, topic: str) -> Iterator[None]:
        forbid(self.admin, ResourceType.TOPIC, topic)
        rest = [each for each in OF_A_TOPIC if each is not operation]
        allow(self.admin, *((ResourceType.TOPIC, topic, each) for each in rest))
        try:
            yield
        finally:
            allow(self.admin, (ResourceType.TOPIC, topic, operation))

    # -- what a worker is asked to do with its topics --

    def change(self) -> "httpx.Response":
        """Change the source's config, so that its task is started again."""
        self._lines += 1
        file = str(self.folder / "in.txt")
        config = {"connector.class": "FileStreamSource", "file": file, "topic": "lines"}
        return httpx.put(
            f"{self.worker.url}/connectors/src/config",
            json={**config, "version": str(self._lines)},
            headers={TIMEOUT_HEADER: "3000"},
            timeout=SECONDS,
        )

    def await_change(self) -> None:
        await_true("change", lambda: self.change().status_code < 300, SECONDS, self.worker.tail)

    def restart(self) -> str:
        self.worker.rest.post("/connectors/src/restart")
        return self.worker.log.read_text()

    def offsets(self) -> str:
        return json.dumps(self.worker.rest.get("/connectors/src/offsets").body)

    def add_line(self) -> None:
        with (self.folder / "in.txt").open("a") as file:
            file.write("a\n")

    def await_running(self) -> None:
        await_true("RUNNING", lambda: self.status().count("RUNNING") == 2, SECONDS, self.status)

    def status(self) -> str:
        body: Any = self.worker.rest.status("src").body
        return json.dumps(body)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refused]:
    made = Refused(tmp_path_factory.mktemp("refused"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("operation", first(1, [AclOperation.READ, AclOperation.WRITE]))
@pytest.mark.parametrize("kind", first(1, sorted(TOPICS)))
@pytest.mark.exhaustive
def test_a_worker_says_what_it_may_not_do_with_its_topics_until_it_may(
    refused: Refused, kind: str, operation: AclOperation
) -> None:
    topic = TOPICS[kind]
    lacks = f"User:{USER} lacks {operation.name.capitalize()} on Topic:{topic}"
    if (kind, operation) == ("offset", AclOperation.WRITE):
        # In one transaction with the records.
        lacks = f"User:{USER} lacks Write on Topic:lines or Topic:{topic}"
    began = len(refused.worker.log.read_text())

    def told() -> str:
        """Return the text in which the message must be: the log, or the answer to the request."""
        match kind, operation:
            case "offset", AclOperation.READ:
                return refused.offsets()
            case "offset", _:
                refused.add_line()
                return refused.status()
            case "config", AclOperation.WRITE:
                return refused.change().text
            case "status", AclOperation.WRITE:
                return refused.restart()[began:]
            case _:
                return refused.worker.log.read_text()[began:]

    with refused.without(operation, topic):
        await_true(lacks, lambda: lacks in told(), SECONDS, lambda: told()[-3_000:])
    refused.await_change()
    refused.await_running()


@pytest.mark.parametrize("kind", first(1, sorted(TOPICS)))
def test_a_worker_that_may_not_make_a_topic_ends_with_the_reason(
    refused: Refused, kind: str, tmp_path: Path
) -> None:
    topic = f"later-{kind}"
    allow(refused.admin, *((ResourceType.TOPIC, topic, each) for each in OF_A_TOPIC))
    given = {**with_login(refused.broker), f"{kind}.storage.topic": topic}
    given |= {"listeners": f"http://127.0.0.1:{free_ports(1)[0]}"}
    file = tmp_path / "worker.properties"
    file.write_text(javaproperties.dumps(given, timestamp=False))
    done = headgate("worker", str(file))
    assert done.returncode == 1, done.stderr
    assert f"User:{USER} lacks Create on Topic:{topic}" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and PASSWORD not in done.stderr


def test_who_may_only_read_observes_and_changes_nothing(refused: Refused, tmp_path: Path) -> None:
    read = [(ResourceType.TOPIC, topic, AclOperation.READ) for topic in TOPICS.values()]
    group = (ResourceType.GROUP, "workers", AclOperation.DESCRIBE)
    allow(refused.admin, *read, group, user="watcher")
    refused.await_change()
    refused.await_running()
    file = tmp_path / "watcher.properties"
    login = security_of("watcher", PASSWORD)
    given = {**properties(refused.broker.sasl_address), **login}
    file.write_text(javaproperties.dumps(given, timestamp=False))
    look = partial(observed, "--properties", str(file))
    view = changing_nothing(refused.broker.address, look)
    own = refused.worker.url.removeprefix("http://")
    assert [member["name"] for member in view["group"]["members"]] == [own]
    assert view["connectors"]["src"]["tasks"][0]["owner"] == own
    assert view["connectors"]["src"]["offsets"]
    assert view["findings"] == []
