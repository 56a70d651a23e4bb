"""A sink's consumer over rebalances: its pauses, records that were fetched before, and leaving.

The client here does what librdkafka does: a pause is a flag of the partition that no assignment
clears, and callbacks run inside `poll` and `consume`. Real brokers are in tests/e2e.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate_kafka.records import consumer
from headgate_kafka.records.consumer import LEAVE_EMPTY_S, LEAVE_S, KafkaConsumer

A, B = ("t", 0), ("t", 1)


class Message:
    def __init__(self, partition: tuple[str, int], offset: int) -> None:
        self._place, self._offset = partition, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


class End(Message):
    """The partition is read to its end."""

    def error(self) -> Any:
        return KafkaError(KafkaError._PARTITION_EOF)


class Client:
    """`polls` and `batches`: what the next calls give, or do."""

    def __init__(self, _settings: object) -> None:
        self.paused: set[tuple[str, int]] = set()
        self.polls: list[Any] = []
        self.batches: list[Any] = []
        self.member_id = ""
        self.places: list[Any] = []
        self.calls: list[str] = []
        self.fatal: KafkaException | None = None

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")
        if self.fatal is not None:
            raise self.fatal

    def close(self) -> None:
        self.calls.append("close")

    def assignment(self) -> list[Any]:
        return self.places

    def memberid(self) -> str:
        return self.member_id

    def subscribe(self, _topics: object, on_assign: Any, on_revoke: Any) -> None:
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def assigns(self, *partitions: tuple[str, int]) -> Callable[[], None]:
        return lambda: self._on_assign(self, [consumer.Place(*each) for each in partitions])

    def revokes(self, *partitions: tuple[str, int]) -> Callable[[], None]:
        return lambda: self._on_revoke(self, [consumer.Place(*each) for each in partitions])

    def pause(self, places: Sequence[Any]) -> None:
        self.paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: Sequence[Any]) -> None:
        self.paused -= {(place.topic, place.partition) for place in places}

    def _nothing(self, *_given: object) -> None: ...

    incremental_assign = incremental_unassign = assign = unassign = seek = _nothing

    def poll(self, _timeout: float) -> Any:
        found = self.polls.pop(0) if self.polls else None
        return found() if callable(found) else found

    def consume(self, _count: int, _timeout: float) -> Any:
        found = self.batches.pop(0) if self.batches else None
        return (found() if callable(found) else found) or []


@pytest.fixture(params=["cooperative", "eager"])
def made(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[KafkaConsumer, Client]:
    monkeypatch.setattr(consumer, "Consumer", Client)
    more = {"group.protocol": "consumer"} if request.param == "cooperative" else {}
    opened = KafkaConsumer({"bootstrap.servers": "b", "group.id": "g", **more}, ["t"], print)
    client: Any = opened._client
    return opened, client


Made = tuple[KafkaConsumer, Client]


def given(made: Made, *polls: Any) -> list[tuple[int, int]]:
    """Partition and offset of what the next poll gives."""
    made[1].polls.extend(polls)
    return [(record.partition, record.offset) for record in made[0].poll(10, 0)]


def test_a_partition_that_was_paused_when_it_went_is_read_when_it_is_back(made: Made) -> None:
    opened, client = made
    given(made, client.assigns(A))
    opened.pause([A])
    given(made, client.revokes(A))
    given(made, client.assigns(A))
    assert client.paused == set()
    assert given(made, Message(A, 0)) == [(0, 0)]


def test_what_a_callback_pauses_is_not_given(made: Made) -> None:
    """A record was fetched when the rebalance came: the task pauses all, as a sink that waits for
    its own system does."""
    opened, client = made
    given(made, client.assigns(A))
    opened.on_rebalance(lambda _new: opened.pause(sorted(opened.assignment())), lambda _gone: None)
    client.batches.append(client.assigns(B))
    assert given(made, Message(A, 0)) == []
    assert client.paused == {A, B}
    opened.resume([A, B])
    assert given(made, Message(A, 1)) == [(0, 0), (0, 1)]


def test_what_was_kept_of_a_revoked_partition_is_not_given(made: Made) -> None:
    """The partition's next owner reads these records. They would be there twice, and offsets would
    go back."""
    opened, client = made
    given(made, client.assigns(A, B))
    client.polls.append(Message(A, 5))
    assert opened.poll(0, 0) == []
    opened.pause([A])
    client.batches.append(client.revokes(A))
    assert given(made, Message(B, 0)) in ([(1, 0)], [])
    assert given(made) == []
    assert A not in opened.assignment()


def test_what_was_sought_within_a_callback_is_not_given_as_well(made: Made) -> None:
    opened, client = made
    given(made, client.assigns(A))
    client.seek = lambda _place: None  # type: ignore[attr-defined]
    opened.on_rebalance(lambda _new: opened.seek(A, 7), lambda _gone: None)
    client.batches.append(client.assigns(B))
    assert given(made, Message(A, 0)) == []


def test_a_task_is_told_when_partitions_are_gone_for_good(made: Made) -> None:
    """A partition that is revoked only to be assigned anew comes back at once, and a task's own
    pauses last beyond that."""
    opened, client = made
    given(made, client.assigns(A, B))
    heard: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    opened.on_rebalance(
        lambda new: heard.append(("given", tuple(new))),
        lambda gone: heard.append(("revoked", tuple(gone))),
    )
    given(made, client.revokes(A))
    if opened._cooperative:
        assert heard == [("revoked", (A,)), ("given", ())]
    else:
        assert heard == [("revoked", (A, B))]


def test_a_client_that_cannot_unsubscribe_is_closed(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a fatal error the client can only be closed. Its threads and connections would
    otherwise stay."""
    opened, client = made
    client.fatal = KafkaException(KafkaError(KafkaError._FATAL))
    opened.close()
    assert client.calls == ["unsubscribe", "close"]
    assert "group g" in capsys.readouterr().out


def test_closing_twice_leaves_once(made: Made) -> None:
    opened, client = made
    opened.close()
    opened.close()
    assert client.calls == ["unsubscribe", "close", "close"]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("places", "member_id", "seconds"),
    [([A], "me", LEAVE_S), ([A], "", LEAVE_S), ([], "me", LEAVE_EMPTY_S)],
)
def test_others_hold_up_who_leaves_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, places: list[Any], member_id: str, seconds: float
) -> None:
    clock = Clock()

    class WaitingClient(Client):
        def poll(self, timeout: float) -> Any:
            clock.now_s += timeout

    monkeypatch.setattr(consumer, "Consumer", WaitingClient)
    monkeypatch.setattr(consumer, "time", clock)
    opened = KafkaConsumer({"bootstrap.servers": "b", "group.id": "g"}, ["t"], print)
    client: Any = opened._client
    client.member_id, client.places = member_id, places
    opened.close()
    assert clock.now_s == pytest.approx(seconds, abs=0.05)
    assert client.calls == ["unsubscribe", "close"]


def test_where_partitions_are_read_to_is_known(made: Made) -> None:
    opened, client = made
    given(made, client.assigns(A, B))
    assert opened.known_positions() == {}
    client.batches.append([End(A, 8)])
    assert given(made, Message(A, 6)) == [(0, 6)]
    assert given(made, End(B, 0)) == []
    assert opened.known_positions() == {A: 8, B: 0}
    opened.seek(B, 0)
    assert opened.known_positions() == {A: 8}
    given(made, client.revokes(A))
    assert opened.known_positions() == {}


def test_an_end_before_records_that_are_held_back_is_none(made: Made) -> None:
    opened, client = made
    given(made, client.assigns(A, B))
    opened.pause([A])
    given(made, Message(A, 6))
    client.batches.append([End(B, 3)])
    given(made, End(A, 7))
    assert opened.known_positions() == {B: 3}
