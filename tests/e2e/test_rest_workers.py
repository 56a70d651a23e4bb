"""Any worker of a group takes a call, and passes it on by HTTP to the leader or to owners."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.rest.worker import rest_worker
from support.rest.world import wait_until

from headgate_rest import RestService

pytestmark = pytest.mark.slow


class Group:
    def __init__(self, workers: list[RestService]) -> None:
        self.clients = [
            httpx.Client(base_url=worker.url, timeout=100, trust_env=False) for worker in workers
        ]
        self.ids = [worker.worker_id for worker in workers]

    def ask(self, worker: int, line: str, body: object = None) -> tuple[int, Any]:
        method, path = line.split(" ", 1)
        content = {} if body is None else {"json": body}
        answer = self.clients[worker].request(method, path, **content)  # type: ignore[arg-type]
        return answer.status_code, answer.json() if answer.content else None

    def views(self) -> list[dict[str, Any]]:
        return [self.ask(n, "GET /headgate/worker")[1] for n in range(len(self.clients))]

    def owner(self, name: str) -> int:
        """-1: nobody has said so yet."""
        status, body = self.ask(0, f"GET /connectors/{name}/status")
        return self.ids.index(body["connector"]["worker_id"]) if status == 200 else -1

    def task_owner(self, name: str) -> int:
        """Return the owner of the connector's first task."""
        task = self.ask(0, f"GET /connectors/{name}/status")[1]["tasks"][0]
        return self.ids.index(task["worker_id"])

    def await_tasks(self, name: str, state: str) -> None:
        def there() -> bool:
            status, body = self.ask(1, f"GET /connectors/{name}/status")
            return status == 200 and [each["state"] for each in body["tasks"]] == [state]

        wait_until(there, 30)


@pytest.fixture
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    """A group of two workers, or of as many as the test asks for."""
    settings, count = {"scheduled.rebalance.max.delay.ms": "0"}, getattr(request, "param", 2)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(rest_worker(tmp_path / "data", settings)) for _ in range(count)
        ]
        yield Group(workers)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", [3], indirect=True)
def test_who_is_neither_leader_nor_owner_is_asked_to_restart(group: Group, tmp_path: Path) -> None:
    """Two hops: it asks the leader, which asks the owner."""
    (tmp_path / "in.txt").write_text("")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
    }
    wait_until(lambda: len({view["generation"] for view in group.views()}) == 1, 20)
    names = [f"c{n}" for n in range(6)]
    for name in names:
        assert group.ask(0, "POST /connectors", {"name": name, "config": config})[0] == 201
    for name in names:
        group.await_tasks(name, "RUNNING")

    def shares() -> list[int]:
        """Return the number of connectors and tasks of each worker. They are assigned as one
        set."""
        owners = [owner(name) for name in names for owner in (group.owner, group.task_owner)]
        return [owners.count(n) for n in range(3)]

    wait_until(lambda: shares() == [4, 4, 4], 30)
    (leader,) = [n for n, view in enumerate(group.views()) if view["member_id"] == view["leader"]]
    far = Counter[str]()
    for name in names:
        connector, task = group.owner(name), group.task_owner(name)
        for asked in {0, 1, 2} - {leader, connector}:
            assert group.ask(asked, f"POST /connectors/{name}/restart") == (204, None)
            group.await_tasks(name, "RUNNING")
            far["connectors"] += connector != leader
        for asked in {0, 1, 2} - {leader, task}:
            assert group.ask(asked, f"POST /connectors/{name}/tasks/0/restart") == (204, None)
            group.await_tasks(name, "RUNNING")
            far["tasks"] += task != leader
    assert min(far["connectors"], far["tasks"]) >= 2, "the leader has four of the twelve"


def test_what_one_worker_is_asked_another_does(group: Group, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
        "tasks.max": "1",
    }
    wait_until(lambda: len({view["generation"] for view in group.views()}) == 1, 20)
    names = [f"c{n}" for n in range(6)]
    for turn, name in enumerate(names):
        asked = {"name": name, "config": config, "initial_state": "STOPPED"}
        status, body = group.ask(turn % 2, "POST /connectors", asked)
        assert (status, body["name"]) == (201, name)
        assert group.ask(1 - turn % 2, f"GET /connectors/{name}")[0] == 200  # at once, elsewhere
    # Both have some (tasks would count too): so some task configs go from a follower to the leader.
    wait_until(lambda: {group.owner(name) for name in names} == {0, 1}, 30)
    for turn, name in enumerate(names):
        assert group.ask(turn % 2, f"PUT /connectors/{name}/resume")[0] == 202
    for name in names:
        group.await_tasks(name, "RUNNING")
    for name in names:
        for worker in (0, 1):
            assert group.ask(worker, f"POST /connectors/{name}/restart") == (204, None)
            assert group.ask(worker, f"POST /connectors/{name}/tasks/0/restart") == (204, None)
            group.await_tasks(name, "RUNNING")
        body = {**config, "batch.size": "7"}
        status, put = group.ask(1, f"PUT /connectors/{name}/config", body)
        assert (status, put["config"]["batch.size"]) == (200, "7")
        assert group.ask(0, f"PUT /connectors/{name}/stop") == (204, None)
    for name in names:
        wait_until(lambda n=name: group.ask(0, f"GET /connectors/{n}/status")[1]["tasks"] == [], 20)
        for worker in (0, 1):
            assert group.ask(worker, f"GET /connectors/{name}/offsets")[0] == 200
        assert group.ask(1, f"DELETE /connectors/{name}") == (204, None)
        assert group.ask(0, f"DELETE /connectors/{name}")[0] == 404
    assert [group.ask(n, "GET /connectors") for n in (0, 1)] == [(200, []), (200, [])]
