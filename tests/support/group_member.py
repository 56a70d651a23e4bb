"""A member of the workers' group, driven by hand."""

from support.worlds import Transport, World

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

GROUP = "workers"
SESSION_MS = 10_000


class HandMember:
    """Sends what it is told, and keeps what came back in `responses`."""

    def __init__(self, world: World, transport: Transport, client_id: str) -> None:
        self.world = world
        self.transport = transport
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.sequence = 0
        self.responses: list[GroupResponse] = []

    def send_join(self) -> None:
        self.sequence += 1
        self.transport.group.send(
            JoinGroup(
                GROUP,
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
        [answer] = self.receive()
        assert isinstance(answer, JoinedGroup)
        assert answer.error is GroupError.MEMBER_ID_REQUIRED
        self.member_id = answer.member_id

    def receive(self) -> list[GroupResponse]:
        found = list(self.transport.group.receive())
        self.responses += found
        return found

    def joined(self) -> JoinedGroup:
        """The answer to the join, which must be there."""
        [answer] = [r for r in self.receive() if isinstance(r, JoinedGroup)]
        assert answer.error is None, answer
        self.generation = answer.generation
        return answer

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        self.transport.group.send(SyncGroup(GROUP, self.member_id, self.generation, assignments))

    def heartbeat(self) -> GroupError | None:
        self.transport.group.send(Heartbeat(GROUP, self.member_id, self.generation))
        answers = [r for r in self.receive() if isinstance(r, HeartbeatAnswered)]
        return answers[-1].error

    def leave(self) -> None:
        self.transport.group.send(LeaveGroup(GROUP, self.member_id))


def join_all(world: World, *members: HandMember) -> None:
    """A whole round: everybody joins, the first leader syncs `work of <client id>` to each."""
    for member in members:
        if not member.member_id:
            member.ask_id()
        member.send_join()
    world.advance(400)
    answers = [member.joined() for member in members]
    [leader] = [m for m in members if m.member_id == answers[0].leader]
    [roll] = [answer.members for answer in answers if answer.members]
    for member in members:
        work = {m.member_id: b"work of " + m.metadata for m in roll} if member is leader else {}
        member.send_sync(work)
    for member in members:
        [synced] = [r for r in member.receive() if isinstance(r, SyncedGroup)]
        assert synced.assignment == b"work of " + member.client_id.encode()
