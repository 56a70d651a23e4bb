"""One client watches three real workers by turns. Its stream breaks off at any response and is
resumed at another worker, while all workers make changes."""

import queue
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until

from headgate_grpc.client.watching import Watching
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

pytestmark = pytest.mark.exhaustive

SECONDS = {"heartbeat.interval.ms": "500", "scheduled.rebalance.max.delay.ms": "0"}
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
NAMES = tuple(f"c{n}" for n in range(6))
CHANGES = 400
STATES = (
    connector_pb2.TARGET_STATE_STARTED,
    connector_pb2.TARGET_STATE_PAUSED,
    connector_pb2.TARGET_STATE_STOPPED,
)
Shown = tuple[str, int] | None
"""Number in the config, and target state; None: it does not exist."""


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Served]]:
    monkeypatch.setattr("headgate_grpc.watch.SILENCE_S", 0.5)
    with ExitStack() as stack:
        workers = [stack.enter_context(grpc_worker(tmp_path, SECONDS)) for _ in range(3)]
        wait_until(lambda: all(each.worker.herder.view().leader for each in workers), 30)
        wait_until(lambda: all(each.worker.herder.view().settled for each in workers), 30)
        yield workers


class Model:
    """All that was acknowledged, one after the other."""

    def __init__(self) -> None:
        self._done: list[tuple[int, str, Shown]] = []
        self._now: dict[str, tuple[str, int]] = {}

    @property
    def end(self) -> int:
        return self._done[-1][0] if self._done else 0

    def change(self, served: Served, chance: random.Random, number: int) -> None:
        name = chance.choice(NAMES)
        config, state = self._now.get(name, ("", STATES[0]))
        what = chance.choice(("put", "put", "state", "delete")) if config else "put"
        if what == "put":
            config = str(number)
            offset = served.client.put_config(name, {**SINK, "number": config}).config_offset
        elif what == "state":
            state = chance.choice(STATES)
            client = served.client
            ask = {STATES[0]: client.resume, STATES[1]: client.pause, STATES[2]: client.stop}
            offset = ask[state](name).config_offset
        else:
            self._now.pop(name)
            self._done.append((served.client.delete(name).config_offset, name, None))
            return
        self._now[name] = config, state
        self._done.append((offset, name, (config, state)))

    def possible(self, name: str, since: int) -> set[Shown]:
        """Return the states that may be shown to a client that was told everything before a config
        offset."""
        found: list[Shown] = [None]
        for offset, other, shown in self._done:
            if other == name:
                found = [shown] if offset <= since else [*found, shown]
        return set(found)


class Follower:
    """Applies one stream after the other."""

    def __init__(self, workers: list[Served]) -> None:
        self._workers = workers
        self._responses: queue.Queue[pb.WatchConnectorsResponse] = queue.Queue()
        self._stream: Any = None
        self.watching = Watching()
        self.told = 0
        """Config offset that all is known of; 0 while that is not so."""

    def go_to(self, at: int) -> None:
        """Resume at another worker. Responses that came and were not applied are lost."""
        if self._stream is not None:
            self._stream.cancel()
        self._responses = queue.Queue()
        self.told = 0
        request = pb.WatchConnectorsRequest(cursor=self.watching.cursor)
        self._stream = self._workers[at].client.connectors.WatchConnectors(request)
        threading.Thread(target=_read, args=(self._stream, self._responses), daemon=True).start()

    def apply(self, timeout_s: float) -> bool:
        """Apply the next response. Return whether there was one."""
        try:
            response = self._responses.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self.watching.changes(response)
        self.told = response.config_offset if response.cursor and self.watching.cursor else 0
        return True

    def shown(self, name: str) -> Shown:
        found = self.watching.connectors.get(name)
        return None if found is None else (found.config["number"], found.target_state)

    def end(self) -> None:
        if self._stream is not None:
            self._stream.cancel()


def _read(stream: Any, into: "queue.Queue[pb.WatchConnectorsResponse]") -> None:
    try:
        for response in stream:
            into.put(response)
    except grpc.RpcError:
        pass  # it was broken off


def check(follower: Follower, model: Model) -> bool:
    """Check the client's state. Return whether there was something to check."""
    if follower.told == 0:
        return False
    for name in NAMES:
        possible = model.possible(name, follower.told)
        assert follower.shown(name) in possible, (name, follower.told, possible)
    return True


def test_what_is_applied_is_what_a_listing_says_at_that_config_offset(
    three: list[Served],
) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    print("seed", seed)
    chance = random.Random(seed)
    model, follower, checked = Model(), Follower(three), 0
    follower.go_to(0)
    for number in range(CHANGES):
        model.change(chance.choice(three), chance, number)
        if chance.random() < 0.3:
            follower.go_to(chance.randrange(3))
        for _ in range(chance.randrange(4)):
            follower.apply(0.02)
            checked += check(follower, model)
    assert checked > CHANGES / 4
    for at in (0, 1, 2, 1):
        follower.go_to(at)
        until = time.monotonic() + 30
        while follower.told < model.end:
            assert time.monotonic() < until, (follower.told, model.end)
            follower.apply(1)
        check(follower, model)
        listed = three[at].client.list(min_config_offset=model.end)
        shown = {each.name: (each.config["number"], each.target_state) for each in listed}
        assert {name: follower.shown(name) for name in follower.watching.connectors} == shown
    wait_until(lambda: settles(follower, three[1]), 60)
    follower.end()


def settles(follower: Follower, served: Served) -> bool:
    """Return whether client and worker agree, statuses included."""
    while follower.apply(0.05):
        pass
    return follower.watching.connectors == {each.name: each for each in served.client.list()}
