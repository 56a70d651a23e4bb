"""WatchCluster on a real worker, and on a cluster that the test makes up."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from support.grpc.worker import Served, grpc_worker

from headgate import wire
from headgate.herder.messages import ErrorKind, TaskView, WorkerView
from headgate.ids import State, TaskId
from headgate_grpc import cluster_watch, messages
from headgate_grpc.client import HeadgateError
from headgate_grpc.client.watching import WorkerChange, worker_changes
from headgate_grpc.cluster_watch import ClusterHub
from headgate_grpc.errors import MEANINGS, RefusedError
from headgate_grpc.v1 import cluster_service_pb2 as pb

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null", "tasks.max": "2"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with grpc_worker(tmp_path) as served:
        yield served


def test_what_a_worker_runs_is_told_when_it_changes(served: Served) -> None:
    seen: Queue[WorkerChange | HeadgateError] = Queue()

    def follow() -> None:
        try:
            for change in served.client.watch_cluster():
                seen.put(change)
        except HeadgateError as error:
            seen.put(error)

    thread = threading.Thread(target=follow)
    thread.start()

    def until(holds: Any) -> pb.Worker:
        while True:
            change = seen.get(timeout=20)
            assert isinstance(change, WorkerChange) and change.worker is not None, change
            if holds(change.worker):
                return change.worker

    first = until(lambda worker: True)
    assert (first.worker_id, first.leader) == (served.rest.worker_id, True) and not first.connectors
    served.client.create("a", SINK)
    until(lambda worker: list(worker.connectors) == ["a"] and set(worker.tasks) == {"a-0", "a-1"})
    served.client.delete("a")
    until(lambda worker: not worker.connectors and not worker.tasks)
    served.server.close()
    error = seen.get(timeout=20)
    while isinstance(error, WorkerChange):
        error = seen.get(timeout=20)
    assert (error.code, error.reason) == ("UNAVAILABLE", "NOT_READY")
    thread.join()


class Workers:
    """A backend that knows the workers that it is given."""

    def __init__(self) -> None:
        self.views: dict[str, WorkerView | None] = {}
        self.asked = 0

    async def cluster(self, timeout_ms: int) -> Any:
        self.asked += 1
        workers = [
            {"worker_id": name, "url": "", "view": None if view is None else wire.plain(view)}
            for name, view in self.views.items()
        ]
        return {
            "version": "v",
            "commit": "c",
            "kafka_cluster_id": "k",
            "group_id": "g",
            "workers": workers,
        }


def view(tasks: int = 0, generation: int = 1) -> WorkerView:
    names = {f"{number}-{'x' * 100}": ("RUNNING", "") for number in range(tasks)}
    return WorkerView(
        worker_id="", url="", member_id="m", leader="", generation=generation, config_offset=0,
        settled=True, pending=(), connectors=names, tasks=(), rebalances=0,  # type: ignore[arg-type]
    )  # fmt: skip


def test_workers_come_change_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster_watch, "SILENCE_S", 0.1)

    async def watched() -> None:
        backend: Any = Workers()
        backend.views = {"a": view(), "b": view(600), "c": view(600)}
        hub = ClusterHub(backend)
        stream = hub.watch()
        known: dict[str, pb.Worker] = {}

        async def told() -> tuple[pb.WatchClusterResponse, list[str]]:
            response = await anext(stream)
            return response, [each.worker_id for each in worker_changes(response, known)]

        first, names = await told()
        assert first.reset and not first.synced and names == ["a", "b"]
        assert first.cluster.group_id == "g" and not first.cluster.workers
        second, names = await told()
        assert second.synced and not second.reset and names == ["c"], "64 KiB a response"
        silent, names = await told()
        assert not names and not silent.synced
        backend.views = {"a": view(generation=2), "c": view(600), "d": None}
        _, names = await told()
        assert sorted(names) == ["a", "b", "d"] and set(known) == {"a", "c", "d"}
        assert known["a"].generation == 2 and not known["d"].answers
        await stream.aclose()
        asked = backend.asked
        await asyncio.sleep(0.1)
        assert backend.asked <= asked + 1, "nobody watches any more"

    asyncio.run(watched())


def test_a_slow_reader_hears_the_last_state_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.01)

    async def watched() -> None:
        backend: Any = Workers()
        backend.views = {"a": view()}
        hub = ClusterHub(backend)
        stream = hub.watch()
        await anext(stream)
        for generation in range(2, 30):
            backend.views = {"a": view(generation=generation)}
            asked = backend.asked
            while backend.asked < asked + 2:
                await asyncio.sleep(0.005)
        (worker,) = (await anext(stream)).workers
        assert worker.generation == 29
        await hub.close()
        with pytest.raises(RefusedError, match="shutting down"):
            await anext(stream)

    asyncio.run(watched())


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster_watch, "WATCHES_MAX", 2)

    async def watched() -> None:
        hub = ClusterHub(Workers())  # type: ignore[arg-type]
        streams = [hub.watch() for _ in range(3)]
        for stream in streams[:2]:
            await anext(stream)
        with pytest.raises(RefusedError, match="2 watches of the cluster"):
            await anext(streams[2])
        await streams[0].aclose()
        await anext(hub.watch())

    asyncio.run(watched())


def test_a_watch_whose_workers_cannot_be_seen_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster_watch, "FIRST_S", 0.3)

    class Broken(Workers):
        async def cluster(self, timeout_ms: int) -> Any:
            raise OSError("the disk is gone")

    async def watched() -> None:
        hub = ClusterHub(Broken())  # type: ignore[arg-type]
        with pytest.raises(RefusedError, match=r"within 0.3 s: the disk is gone. Ask") as caught:
            await asyncio.wait_for(anext(hub.watch()), 5)
        assert caught.value.meaning is MEANINGS[ErrorKind.NOT_READY]

    asyncio.run(watched())


def test_what_is_set_aside_is_told_up_to_a_limit() -> None:
    files = tuple(f"{number}.csv: bad" for number in range(messages.SET_ASIDE_MAX + 3))
    tasks = tuple(
        TaskView(TaskId("a-b", number), State.RUNNING, 0, 0, False, 0, "", quarantined=aside)
        for number, aside in enumerate([files, (), ("x.csv: bad",)])
    )
    raw = {"worker_id": "w", "url": "", "view": wire.plain(replace(view(), tasks=tasks))}
    (told,) = messages.cluster(
        {"version": "", "commit": "", "kafka_cluster_id": "", "group_id": "", "workers": [raw]}
    ).workers
    assert [(one.task, len(one.inputs), one.more) for one in told.set_aside] == [
        ("a-b-0", messages.SET_ASIDE_MAX, 3),
        ("a-b-2", 1, 0),
    ]


def test_other_workers_of_the_group_are_told_too() -> None:
    """Their state comes with the group, which is asked less often than the worker itself."""

    class Grouped(Workers):
        async def group(self, timeout_ms: int) -> Any:
            found = dict(await self.cluster(timeout_ms))
            other = {"worker_id": "b", "url": "", "view": None, "unknown": "why", "member": True}
            gone = {"worker_id": "c", "url": "", "view": None}
            return {**found, "workers": [*found["workers"], other, gone]}

    async def watched() -> list[pb.Worker]:
        backend = Grouped()
        backend.views["a"] = None
        hub = ClusterHub(backend)  # type: ignore[arg-type]
        response = await asyncio.wait_for(anext(hub.watch()), 10)
        await hub.close()
        return list(response.workers)

    own, other = asyncio.run(watched())
    assert (own.worker_id, other.worker_id, other.unknown) == ("a", "b", "why")


class Group(Workers):
    """The worker "a" is asked; `groups` has what the group says, one after the other."""

    def __init__(self, *groups: Any) -> None:
        super().__init__()
        self.views["a"] = view()
        self.groups = list(groups)
        self.told = 0

    async def group(self, timeout_ms: int) -> Any:
        found = dict(await self.cluster(timeout_ms))
        (own,) = found["workers"]
        now = self.groups[min(self.told, len(self.groups) - 1)]
        self.told += 1
        if isinstance(now, str):
            return {**found, "others_unknown": now}
        return {**found, "workers": [{**own, "member": True}, *now]}


HANGS = TaskView(TaskId("c", 0), State.RUNNING, 1, 0, False, 0, "", call="poll", call_since_ms=0)


def runs(generation: int = 1) -> dict[str, Any]:
    own = replace(view(1, generation), tasks=(HANGS,), pending=("a start",), now_ms=60_000)
    return {"worker_id": "b", "url": "", "view": wire.plain(own), "member": True}


def late(generation: int = 1) -> dict[str, Any]:
    """Return the row of a worker that does not answer, as the leader's last round describes it."""
    round_ = {"generation": generation, "counts": (1, 1), "leader": True}
    return {"worker_id": "b", "url": "", "view": None, "unknown": "late", "member": True, **round_}


def told_by(backend: Group, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, pb.Worker]]:
    """All workers after each response, until the group has said all."""
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster_watch, "OTHERS_S", 0.1)
    monkeypatch.setattr(cluster_watch, "SILENCE_S", 0.05)
    known: dict[str, pb.Worker] = {}
    seen: list[dict[str, pb.Worker]] = []

    async def watched() -> None:
        hub = ClusterHub(backend)  # type: ignore[arg-type]
        async for response in hub.watch():
            worker_changes(response, known)
            seen.append(dict(known))
            if response.reset:
                assert response.cluster.others_unknown == (
                    backend.groups[0] if isinstance(backend.groups[0], str) else ""
                )
            if backend.told > len(backend.groups) + 1:
                break
        await hub.close()

    asyncio.run(asyncio.wait_for(watched(), 20))
    return seen


def test_no_worker_is_gone_while_the_group_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Group([runs()], "the leader is not known", [runs()])
    for workers in told_by(backend, monkeypatch):
        assert set(workers) == {"a", "b"}
        assert workers["a"].member and list(workers["b"].tasks) == ["c-0"]


def test_why_the_others_are_not_known_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Group("the leader is not known", "the leader is not known", [runs()])
    seen = told_by(backend, monkeypatch)
    assert (set(seen[0]), set(seen[-1])) == ({"a"}, {"a", "b"})


def test_a_worker_that_answers_late_keeps_its_tasks_until_the_next_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = told_by(Group([runs()], [late()], [late()]), monkeypatch)
    (first, last) = seen[0]["b"], seen[-1]["b"]
    assert first.answers and not first.unknown and len(first.long_calls) == 1
    assert (last.answers, last.unknown, last.leader) == (False, "late", True)
    assert last.tasks == first.tasks and last.connectors == first.connectors
    assert not last.long_calls and not last.pending and not last.settled
    last = told_by(Group([runs()], [late(2)]), monkeypatch)[-1]["b"]
    assert not last.tasks and (last.generation, last.task_count) == (2, 1)
