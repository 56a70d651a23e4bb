"""Rows of listings are kept as bytes, and are always what would be made now."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.grpc.worker import grpc_worker

from headgate_grpc import listed, messages
from headgate_grpc.listed import Listed
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

ROW: dict[str, Any] = {
    "name": "orders",
    "type": "source",
    "target_state": "STARTED",
    "task_count": 2,
    "settled": False,
    "etag": 7,
    "status": {
        "name": "orders",
        "connector": {"state": "RUNNING", "worker_id": "w", "version": "1"},
        "tasks": [{"id": 1, "state": "FAILED", "worker_id": "w", "version": None, "trace": "no"}],
        "type": "source",
    },
}


def parsed(*shown: bytes) -> list[connector_pb2.Connector]:
    return list(pb.ListConnectorsResponse.FromString(b"".join(shown)).connectors)


def test_rows_one_after_the_other_are_one_response() -> None:
    rows = [{**ROW, "name": name} for name in ("a", "b", "c")]
    kept = Listed()
    assert parsed(*map(kept.shown, rows)) == [messages.connector(row) for row in rows]


def test_a_row_that_is_another_object_is_made_again() -> None:
    kept, paused = Listed(), {**ROW, "target_state": "PAUSED"}
    first = kept.shown(ROW)
    assert kept.shown(ROW) is first
    assert parsed(kept.shown(paused)) == [messages.connector(paused)]
    assert kept.shown({**ROW, "config": {"a": "b"}}) != first


RUNNING = {"state": "RUNNING", "worker_id": "w", "version": None}
OTHERS: list[dict[str, Any]] = [
    {**RUNNING, "state": "odd"},
    {**RUNNING, "worker_id": "\ud800"},
    {**RUNNING, "version": "1"},
    {**RUNNING, "trace": "no"},
]
BOTH = [{"id": 0, **RUNNING}, {"id": 1, **RUNNING}]
PLAIN = {**ROW, "status": {"connector": RUNNING, "tasks": BOTH}}
CHANGES: list[dict[str, Any]] = [
    {"name": "\ud800"},
    {"type": "sink"},
    {"target_state": "PAUSED"},
    *({"task_count": count} for count in (0, 1, 3)),
    {"settled": True},
    {"etag": 2**60},
    {"status": None},
    *({"status": {"connector": other, "tasks": BOTH}} for other in OTHERS),
    *({"status": {"connector": RUNNING, "tasks": tasks}} for tasks in ([], BOTH[:1], BOTH[1:])),
    *(
        {"status": {"connector": RUNNING, "tasks": [BOTH[0], {"id": 1, **other}]}}
        for other in OTHERS
    ),
    {"status": {"connector": RUNNING, "tasks": [BOTH[0], {"id": -1, **RUNNING}]}},
    *({"config": config} for config in ({}, {"a": "b"}, {"a": None})),
    {"topics": ["t"]},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_row_that_is_like_another_but_for_one_part_is_the_message_that_it_would_be_alone(
    change: dict[str, Any],
) -> None:
    for given in ([PLAIN, {**PLAIN, **change}], [{**PLAIN, **change}, PLAIN]):
        alone = [messages.connector(row) for row in given]
        assert alone[0] != alone[1] or change == {"config": {}}
        assert parsed(*map(Listed().shown, given)) == alone


def test_rows_that_differ_by_names_alone_have_one_pattern_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listed, "PATTERNS_MAX", 2)
    kept, fine = Listed(), {**ROW, "status": {**ROW["status"], "tasks": []}}
    for number in range(5):
        kept.shown({**fine, "name": str(number), "etag": number})
        kept.shown({**ROW, "name": f"failed {number}"})
    assert len(kept._patterns) == 1, "a trace is one connector's"
    for count in range(5):
        kept.shown({**fine, "task_count": count})
    assert len(kept._patterns) == 2


def test_what_is_kept_is_dropped_after_the_last_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "KEPT_S", 0.05)

    async def story() -> None:
        kept = Listed()
        kept.asked()
        first = kept.shown(ROW)
        await asyncio.sleep(0.02)
        kept.asked()
        assert kept.shown(ROW) is first
        kept.shown({**ROW, "status": {**ROW["status"], "tasks": []}})
        while kept._kept or kept._patterns:
            await asyncio.sleep(0.01)
        assert kept.shown(ROW) == first

    asyncio.run(asyncio.wait_for(story(), 10))


def test_a_listing_shows_each_change_at_once(tmp_path: Path) -> None:
    """A worker keeps rows from listing to listing, but a change that it has read since is in the
    next one."""
    config = {"connector.class": "FileStreamSource", "file": "none", "topic": "t"}
    with grpc_worker(tmp_path) as served:
        client = served.client
        client.create("c", config)
        for version in range(5):
            made = client.put_config("c", {**config, "version": str(version)})
            (shown,) = client.list()
            assert shown.config["version"] == str(version)
            assert shown.etag == made.connector.etag != ""
        client.stop("c")
        (shown,) = client.list(view=connector_pb2.CONNECTOR_VIEW_STATUS)
        assert shown.target_state == connector_pb2.TARGET_STATE_STOPPED
        client.delete("c")
        assert list(client.list()) == []
