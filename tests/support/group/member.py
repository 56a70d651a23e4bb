"""A member of the workers' group, driven by hand."""

import time
from typing import TypeVar

from support.embedded.worlds import Transport, World

from headgate.membership.messages import (
    GroupError,
    GroupResponse,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.ports import RefusedError, TransportError

GROUP = "workers"
SESSION_MS = 6_000
"""The least that a Kafka broker allows by default."""
ANSWER_S = 10.0
Response = TypeVar("Response", JoinedGroup, SyncedGroup, HeartbeatAnswered)


class HandMember:
    """A member that sends only what the test tells it to, and keeps the answers in `responses`."""

    def __init__(self, world: World, transport: Transport, client_id: str) -> None:
        self.world = world
        self.transport = transport
        self.client_id = client_id
        self.group = world.name(GROUP)
        self.member_id = ""
        self.generation = -1
        self.sequence = 0
        self.responses: list[GroupResponse] = []

    def send_join(self) -> None:
        self.sequence += 1
        self.transport.group.send(
            JoinGroup(
                self.group,
                self.member_id,
                self.client_id,
                "connect",
                (("headgate", self.client_id.encode()),),
                SESSION_MS,
                60_000,
                self.sequence,
            )
        )

    def ask_id(self) -> None:
        self.send_join()
        answer = self.await_response(JoinedGroup)
        assert answer.error is GroupError.MEMBER_ID_REQUIRED
        self.member_id = answer.member_id

    def receive(self) -> list[GroupResponse]:
        self.world.await_answers()
        found = list(self.transport.group.receive())
        self.responses += found
        return found

    def await_response(self, kind: type[Response]) -> Response:
        """Return the next answer of this kind, whose request must be under way.

        Errors that pass by themselves are waited out: a broker that has just started may not
        coordinate the group yet, and the port then looks the coordinator up and asks again.
        """
        deadline = time.monotonic() + ANSWER_S
        trouble: TransportError | None = None
        while True:
            try:
                found = [r for r in self.receive() if isinstance(r, kind)]
            except RefusedError:
                raise
            except TransportError as error:
                found, trouble = [], error
            if found:
                return found[0]
            assert time.monotonic() < deadline, trouble or self.responses

    def joined(self) -> JoinedGroup:
        """Return the answer to the join, and take over its generation."""
        answer = self.await_response(JoinedGroup)
        assert answer.error is None, answer
        self.generation = answer.generation
        return answer

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        self.transport.group.send(
            SyncGroup(self.group, self.member_id, self.generation, assignments)
        )

    def heartbeat(self) -> GroupError | None:
        self.transport.group.send(Heartbeat(self.group, self.member_id, self.generation))
        return self.await_response(HeartbeatAnswered).error

    def await_rebalance(self) -> None:
        """Send heartbeats until an answer says that a round is under way."""
        deadline = time.monotonic() + ANSWER_S
        while self.heartbeat() is not GroupError.REBALANCE_IN_PROGRESS:
            assert time.monotonic() < deadline

    def leave(self) -> None:
        self.transport.group.send(LeaveGroup(self.group, self.member_id))


def join_all(world: World, *members: HandMember) -> None:
    """Run a whole round: all members join, and the leader syncs `work of <client id>` to each."""
    for member in members:
        if not member.member_id:
            member.ask_id()
        member.send_join()
    world.advance(400)
    answers = {members[0]: members[0].joined()}
    if 0 < len(answers[members[0]].members) < len(members):
        # This coordinator did not wait: the first was alone, and is needed again.
        members[0].send_join()
        answers[members[0]] = members[0].joined()
    answers |= {member: member.joined() for member in members[1:]}
    [roll] = [answer.members for answer in answers.values() if answer.members]
    assert {m.member_id for m in roll} == {m.member_id for m in members}
    for member in members:
        leads = member.member_id == answers[member].leader
        work = {m.member_id: b"work of " + m.metadata for m in roll} if leads else {}
        member.send_sync(work)
    for member in members:
        synced = member.await_response(SyncedGroup)
        assert synced.assignment == b"work of " + member.client_id.encode()
