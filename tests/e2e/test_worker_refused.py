"""A worker that may not join its group says which right it lacks, and gives up as Connect's
does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import javaproperties
import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType  # type: ignore[attr-defined]
from support.commands.worker import HeadgateWorker, headgate, headgate_worker  # noqa: F401
from support.kafka.cluster import await_true, read_committed
from support.kafka.rights import (
    PASSWORD,
    RIGHTS,
    USER,
    allow,
    forbid,
    make_topics,
    with_login,
)

from headgate_rest.peer import TIMEOUT_HEADER
from local_kafka.broker import Broker
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow
LACKS = "User:connect needs the operation Describe on the resource Group:workers"


@pytest.mark.exhaustive
def test_a_worker_without_rights_on_its_group_ends_with_the_reason(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = own_broker(users={USER: PASSWORD})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    allow(admin, *(right for right in RIGHTS if right[0] is not ResourceType.GROUP))
    file = tmp_path / "worker.properties"
    listener = {"listeners": f"http://127.0.0.1:{free_ports(1)[0]}"}
    file.write_text(javaproperties.dumps({**with_login(broker), **listener}, timestamp=False))
    done = headgate("worker", str(file))
    assert done.returncode == 1, done.stderr
    assert "FindCoordinator on group 'workers' was refused" in done.stderr
    assert LACKS in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and PASSWORD not in done.stderr


@pytest.mark.exhaustive
def test_a_worker_that_loses_its_rights_stops_its_work_and_ends(
    own_broker: Callable[..., Broker],
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    tmp_path: Path,
) -> None:
    broker = own_broker(users={USER: PASSWORD}, settings={"num.partitions": "3"})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    allow(admin, *RIGHTS)
    quick = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    given = {**with_login(broker), **quick, "headgate.task.runner": "thread"}
    del given["listeners"]  # it has its own, where it is asked
    worker = headgate_worker(broker.sasl_address, "workers", given)
    (tmp_path / "in.txt").write_text("a\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "lines",
    }
    assert worker.rest.create("src", config).status == 201
    # It may write to that topic, and create none.
    await_line(broker.address, "lines")
    assert states(worker) == ["RUNNING"]
    new = [
        (ResourceType.TOPIC, "new", right) for right in (AclOperation.WRITE, AclOperation.CREATE)
    ]
    allow(admin, *new, (ResourceType.TRANSACTIONAL_ID, "workers-made-0", AclOperation.WRITE))
    assert worker.rest.create("made", {**config, "topic": "new"}).status == 201
    await_line(broker.address, "new", 3)  # as the broker has it
    forbid(admin, ResourceType.GROUP, "workers")
    assert worker._process is not None
    assert worker._process.wait(30) == 1, worker.tail()
    tail = worker.tail()
    assert "Heartbeat on group 'workers' was refused" in tail or "FindCoordinator" in tail
    assert "needs the operation" in tail and "has stopped" in tail


@pytest.mark.exhaustive
def test_a_leader_that_may_not_write_says_what_it_lacks_until_it_is_given(
    own_broker: Callable[..., Broker],
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    tmp_path: Path,
) -> None:
    broker = own_broker(users={USER: PASSWORD})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    allow(admin, *(right for right in RIGHTS if right[1] != "connect-cluster-workers"))
    given = {**with_login(broker), "headgate.task.runner": "thread"}
    del given["listeners"]
    worker = headgate_worker(broker.sasl_address, "workers", given)
    (tmp_path / "in.txt").write_text("a\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "lines",
    }
    lacks = "User:connect lacks Write on TransactionalId:connect-cluster-workers"
    await_true("word of it in the log", lambda: lacks in worker.log.read_text(), 30)
    headers = {TIMEOUT_HEADER: "2000"}
    refused = httpx.put(f"{worker.url}/connectors/src/config", json=config, headers=headers)
    assert refused.status_code == 409
    assert lacks in refused.json()["message"]
    allow(admin, *RIGHTS)
    await_true("a create", lambda: worker.rest.create("src", config).status == 201, 90)
    await_line(broker.address, "lines")


def await_line(address: str, topic: str, partitions: int = 1) -> None:
    def there() -> bool:
        found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).topics
        return topic in found and len(read_committed(address, topic, partitions)) == 1

    await_true(f"line in {topic}", there, 60)


def states(worker: HeadgateWorker) -> list[str]:
    body: Any = worker.rest.status("src").body
    return [task["state"] for task in body.get("tasks", ())]
