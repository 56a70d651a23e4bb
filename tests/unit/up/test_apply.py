"""Changes of a pipeline file are made side by side, in an order that frees what others need."""

import threading
import time
from collections.abc import Sequence

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    PutConnectorConfig,
    Result,
    Success,
)
from headgate.ports import IncomingCall
from headgate_runtime.up.apply import AT_ONCE, Applier, Change

PATIENCE_S = 20.0


class Cluster:
    """A cluster that answers calls once `together` of them are open, and keeps the calls and the
    answers."""

    def __init__(self, together: int) -> None:
        self._barrier = threading.Barrier(together)
        self.told: list[tuple[str, str]] = []

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        assert isinstance(call, PutConnectorConfig | DeleteConnector)
        self.told.append(("asked", call.name))
        if isinstance(call, PutConnectorConfig):
            self._barrier.wait(PATIENCE_S)
        else:
            time.sleep(0.05)
        self.told.append(("done", call.name))
        return Success()

    def incoming(self) -> Sequence[IncomingCall]:
        return ()

    def answer(self, call_id: str, result: Result) -> None: ...

    def close(self) -> None: ...


def applied(cluster: Cluster, changes: Sequence[Change]) -> list[str]:
    said: list[str] = []
    applier = Applier(cluster, changes, lambda: ["embedded:worker-1"], said.append)
    applier.start()
    until = time.monotonic() + PATIENCE_S
    while applier.applying:
        assert time.monotonic() < until, applier.applying
        time.sleep(0.005)
    assert applier.refused == ()
    return said


def made(number: int) -> Change:
    name = f"c{number}"
    return Change(PutConnectorConfig(name, {"topics": "t"}), f"making connector {name}", name)


def test_so_many_are_asked_for_at_once() -> None:
    said = applied(Cluster(together=AT_ONCE), [made(number) for number in range(3 * AT_ONCE)])
    assert sorted(said) == sorted(f"making connector c{n}: done" for n in range(3 * AT_ONCE))


def test_what_is_deleted_is_gone_before_anything_is_made() -> None:
    olds = [f"old{number}" for number in range(3)]
    cluster = Cluster(together=2)
    deleted = [Change(DeleteConnector(name), f"deleting connector {name}", name) for name in olds]
    applied(cluster, [*deleted, made(0), made(1)])
    first_made = min(cluster.told.index(("asked", name)) for name in ("c0", "c1"))
    assert all(cluster.told.index(("done", name)) < first_made for name in olds)
