"""The group port handles a coordinator's answers, on connections that the test plays."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, NodeNotReadyError

from headgate.membership.messages import (
    GroupError,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.ports import TransportError
from headgate_kafka.group import link as group_link
from headgate_kafka.group.link import Coordinator, check_version
from headgate_kafka.group.port import LEAVE_MS, GroupRefusedError, KafkaGroup

JOIN = JoinGroup("g", "m", "c", "connect", (("p", b"held"),), 6_000, 20_000, sequence=3)
SYNC = SyncGroup("g", "m", 7, {})
BEAT = Heartbeat("g", "m", 7, sent_ms=11)


class Turn:
    """Awaited: the coroutine stands still until the test goes on with it."""

    def __await__(self) -> Iterator[None]:
        yield


class PlayedLink:
    """Everything that runs is a coroutine which the test steps; answers are the test's."""

    def __init__(self) -> None:
        self.servers = "boot:1"
        self.running: list[Any] = []
        self.asked: list[tuple[Any, Any]] = []
        """Node and request, as sent."""
        self.answers: dict[str, list[Any]] = {}
        """By the request's class: what comes next."""
        self.dropped: list[Any] = []
        self.slept: list[float] = []
        self.finds = 0
        self.cannot_find: list[Exception] = []
        self.closed = False

    def spawn(self, function: Any, *args: Any) -> None:
        self.running.append(function(*args))
        self.go_on()

    def go_on(self) -> None:
        for coroutine in list(self.running):
            try:
                coroutine.send(None)
            except StopIteration:
                self.running.remove(coroutine)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await Turn()

    async def find(self, group: str) -> Coordinator:
        self.finds += 1
        if self.cannot_find:
            raise self.cannot_find.pop(0)
        return Coordinator(f"broker:{self.finds}", "waiting", 1)

    async def ask(self, node: Any, request: Any, timeout_ms: int) -> Any:
        kind = type(request).__name__
        self.asked.append((node, kind))
        before = len(self.dropped)
        while not self.answers.get(kind):
            await Turn()
            if {node, "all"} & set(self.dropped[before:]):
                raise KafkaConnectionError("closed")
        found = self.answers[kind].pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def drop(self, node: Any) -> None:
        self.dropped.append(node)

    def drop_all(self) -> None:
        self.dropped.append("all")

    def close(self) -> None:
        self.closed = True

    def answer(self, kind: str, *found: Any) -> None:
        self.answers.setdefault(kind, []).extend(found)
        self.go_on()


def joined(code: int = 0) -> Any:
    return SimpleNamespace(
        error_code=code, member_id="m", generation_id=7, protocol_name="p", leader="x", members=[]
    )


def said(code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, assignment=b"work")


@pytest.fixture
def played() -> tuple[KafkaGroup, PlayedLink]:
    group, link = KafkaGroup({"bootstrap_servers": ["boot:1"]}), PlayedLink()
    group._started = link  # type: ignore[assignment]
    return group, link


Played = tuple[KafkaGroup, PlayedLink]


def test_answers_come_back_with_what_the_member_knows_its_requests_by(played: Played) -> None:
    group, link = played
    for request, kind, answer, expected in (
        (JOIN, "JoinGroupRequest", joined(), JoinedGroup("g", "m", 7, "p", "x", sequence=3)),
        (SYNC, "SyncGroupRequest", said(), SyncedGroup("g", "m", 7, b"work")),
        (BEAT, "HeartbeatRequest", said(), HeartbeatAnswered("g", "m", 7, None, 11)),
    ):
        group.send(request)
        link.answer(kind, answer)
        assert group.receive() == [expected]
    assert link.asked == [
        ("waiting", "JoinGroupRequest"),
        ("waiting", "SyncGroupRequest"),
        (1, "HeartbeatRequest"),
    ]


def test_who_waits_for_answers_is_told_when_there_is_one(played: Played) -> None:
    group, link = played
    found: list[object] = []
    group.subscribe(lambda: found.extend(group.receive()))
    group.send(JOIN)
    assert not found
    link.answer("JoinGroupRequest", joined())
    assert [type(answer) for answer in found] == [JoinedGroup]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (22, GroupError.ILLEGAL_GENERATION),
        (23, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        (25, GroupError.UNKNOWN_MEMBER_ID),
        (27, GroupError.REBALANCE_IN_PROGRESS),
        (79, GroupError.MEMBER_ID_REQUIRED),
    ],
)
def test_errors_for_the_member_are_answers(played: Played, code: int, error: GroupError) -> None:
    group, link = played
    group.send(JOIN)
    link.answer("JoinGroupRequest", joined(code))
    [answer] = group.receive()
    assert answer.error is error
    group.send(JOIN)  # it may pass: the member asks again, and so do we
    assert len(link.asked) == 2


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_moved_or_loads_is_looked_for_again(played: Played, code: int) -> None:
    group, link = played
    group.send(JOIN)
    link.answer("JoinGroupRequest", joined(code))
    assert group.receive() == (), "once is no news"
    link.answer("JoinGroupRequest", joined(code))
    link.go_on()
    with pytest.raises(TransportError, match=r"JoinGroup of group 'g' is not answered at broker:2"):
        group.receive()
    link.answer("JoinGroupRequest", joined())
    link.go_on()
    assert [type(answer) for answer in group.receive()] == [JoinedGroup]
    assert group.receive() == ()
    assert link.finds == 3
    assert link.dropped == [], "the connections are all right"


def test_a_lost_connection_costs_all_of_them_and_a_growing_pause(played: Played) -> None:
    group, link = played
    group.send(JOIN)
    for _ in range(8):
        link.answer("JoinGroupRequest", KafkaConnectionError("reset"))
        link.go_on()
    assert link.dropped == ["all"] * 8
    assert link.slept[:3] == [0.05, 0.1, 0.2] and link.slept[-1] == 1.0
    with pytest.raises(TransportError, match="broker:8: KafkaConnectionError: reset"):
        group.receive()


def test_a_connection_that_may_not_be_tried_yet_does_not_hide_the_reason(played: Played) -> None:
    group, link = played
    link.cannot_find = [
        KafkaConnectionError("111 ECONNREFUSED"),
        NodeNotReadyError("bootstrap-0"),
    ]
    group.send(JOIN)
    link.go_on()
    with pytest.raises(TransportError, match="boot:1: KafkaConnectionError: 111 ECONNREFUSED"):
        group.receive()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (26, "session.timeout.ms must be within"),
        (30, "User:ANONYMOUS needs the operation Read on the resource Group:g "),
        (
            30,
            r"\(kafka-acls --bootstrap-server \S+ --add --allow-principal User:ANONYMOUS "
            r"--operation Read --group g\)",
        ),
        (81, "group.max.size"),
        (-1, "UNKNOWN"),
    ],
)
def test_a_refusal_is_told_at_once_and_asked_again_seldom(
    played: Played, code: int, text: str
) -> None:
    group, link = played
    group.send(JOIN)
    link.answer("JoinGroupRequest", joined(code))
    with pytest.raises(GroupRefusedError, match=text):
        group.receive()
    assert link.slept == [5.0]


def test_a_repetition_is_not_sent_while_the_request_or_its_answer_is_under_way(
    played: Played,
) -> None:
    group, link = played
    for request, kind, answer in (
        (JOIN, "JoinGroupRequest", joined()),
        (SYNC, "SyncGroupRequest", said()),
    ):
        link.asked.clear()
        group.send(request)
        group.send(request)
        link.answer(kind, answer)
        group.send(request)
        assert len(link.asked) == 1
    assert link.dropped == []


def test_a_join_whose_round_is_over_is_asked_again_on_a_new_connection(played: Played) -> None:
    group, link = played
    group.send(JOIN)
    group.send(BEAT)
    link.answer("HeartbeatRequest", said(22))
    group.send(JOIN)
    assert link.asked.count(("waiting", "JoinGroupRequest")) == 2
    assert link.dropped == ["waiting"]


def test_a_later_join_closes_the_connection_of_the_one_that_waits(played: Played) -> None:
    group, link = played
    group.send(JOIN)
    group.send(JoinGroup(*(getattr(JOIN, name) for name in JOIN.__slots__[:-1]), sequence=4))
    link.go_on()
    assert link.dropped == ["waiting"] and link.slept == [], "that it was closed is no failure"
    link.answer("JoinGroupRequest", joined())
    [answer] = group.receive()
    assert isinstance(answer, JoinedGroup) and answer.sequence == 4


def test_joins_that_are_not_numbered_are_all_new(played: Played) -> None:
    group, link = played
    join = JoinGroup("g", "m", "c", "connect", (("p", b"held"),), 6_000, 20_000)
    for _ in range(2):
        group.send(join)
        link.answer("JoinGroupRequest", joined())
        assert len(group.receive()) == 1


def test_closing_waits_for_a_leave_that_is_under_way(played: Played) -> None:
    group, link = played
    group.send(LeaveGroup("g", "m"))
    closing = threading.Thread(target=group.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive() and not link.closed
    link.answer("LeaveGroupRequest", said())
    closing.join(LEAVE_MS / 1000)
    assert link.closed


def test_heartbeats_do_not_pile_up(played: Played) -> None:
    group, link = played
    for sent_ms in (1, 2, 3):
        group.send(Heartbeat("g", "m", 7, sent_ms))
    link.answer("HeartbeatRequest", said())
    assert group.receive() == [HeartbeatAnswered("g", "m", 7, None, 1)]


@pytest.mark.parametrize("late", [JOIN, BEAT])
def test_who_leaves_waits_for_nothing_more(played: Played, late: GroupRequest) -> None:
    group, link = played
    group.send(late)
    group.send(LeaveGroup("g", "m"))
    group.send(BEAT)
    link.answer("JoinGroupRequest", joined())
    link.answer("HeartbeatRequest", said())
    link.answer("LeaveGroupRequest", said())
    assert group.receive() == ()
    group.close()


def test_what_goes_wrong_in_our_own_code_is_told_to_the_caller(played: Played) -> None:
    group, link = played
    with pytest.raises(ZeroDivisionError):
        link.answers["JoinGroupRequest"] = [ZeroDivisionError()]
        group.send(JOIN)
    with pytest.raises(RuntimeError, match="the thread of the group's connections failed"):
        group.receive()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        group.send(JOIN)


def test_another_version_of_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_link, "version", lambda _name: "3.1.0")
    with pytest.raises(RuntimeError, match=r"3\.1\.0 is installed.*exactly 3\.0\.12.*pip install"):
        check_version()
    with pytest.raises(RuntimeError):
        KafkaGroup({})
