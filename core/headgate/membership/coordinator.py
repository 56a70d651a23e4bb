"""The group coordinator machine: who is in a group, and in which generation. Source: Kafka's
classic group protocol.

    EMPTY -----join----> PREPARING: waits until all members have joined, or the round's time is over
    PREPARING ---------> COMPLETING: generation + 1, joins are answered, waits for the leader's sync
    COMPLETING --sync--> STABLE: syncs are answered
    COMPLETING, STABLE --join of a member, leave, silence--> PREPARING, or EMPTY without members

It stands in for a broker where there is none: in the embedded transport, which keeps its state
between calls (`to_plain`), and in simulation. Differs from Kafka's on purpose: a member that waits
for its answer must go on being heard, too, since there is no connection whose end would tell; a
leader keeps its place as long as it is a member; and the longest-standing member comes after it,
where Kafka's takes any.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final, assert_never

from headgate import wire
from headgate.membership.messages import (
    GroupError,
    GroupMember,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    initial_rebalance_delay_ms: int = 300
    """How long the first round of an empty group waits for more members to come. Kafka's default,
    ``group.initial.rebalance.delay.ms``, is 3000."""


DEFAULTS: Final = CoordinatorSettings()


class GroupState(StrEnum):
    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    STABLE = "stable"


@dataclass(slots=True)
class _Member:
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    deadline_ms: int
    """When it is removed unless it is heard."""
    sequence: int
    """Sequence number of the member's last join."""
    joining: bool = True
    """The member's join is part of the round in preparation."""
    confirmed: bool = False
    """It spoke in this generation, so it has had the answer to its join."""
    syncing: bool = False
    """It waits for the leader's sync."""
    assignment: bytes = b""


@dataclass(slots=True)
class _Group:
    name: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    """Kept when the group becomes empty."""
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, _Member] = field(default_factory=lambda: dict[str, _Member]())
    """The longest-standing first."""
    promised: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    """Member ids given out that have not joined yet, and when they lapse."""
    earliest_ms: int = 0
    """PREPARING: not to be completed before."""
    latest_ms: int = 0
    """PREPARING: who has not joined by then is removed; COMPLETING: who has not synced."""

    def joined(self, member: _Member) -> JoinedGroup:
        """Answers the join of a member in the current generation."""
        members: tuple[GroupMember, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                GroupMember(other.member_id, dict(other.protocols)[self.protocol])
                for other in self.members.values()
            )
        return JoinedGroup(
            group=self.name,
            member_id=member.member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=members,
            sequence=member.sequence,
        )

    def synced(self, member: _Member, error: GroupError | None = None) -> SyncedGroup:
        member.syncing = False
        return SyncedGroup(
            self.name,
            member.member_id,
            self.generation,
            member.assignment if error is None else b"",
            error,
        )

    def vote(self) -> str:
        """The protocol most members like best among those that all of them speak.

        A tie goes to the one that the longest-standing member prefers.
        """
        common = self.common_protocols()
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in votes)] += 1
        return max(votes, key=lambda name: votes[name])

    def common_protocols(self, but: str = "") -> list[str]:
        """Names that every member (except `but`) offers, as the longest-standing orders them."""
        offers = [
            [name for name, _ in member.protocols]
            for member in self.members.values()
            if member.member_id != but
        ]
        return [name for name in offers[0] if all(name in offer for offer in offers[1:])]


class Coordinator:
    """Serves many groups. All times are of one monotonic clock, in milliseconds.

    A `JoinGroup` with an empty member id is answered at once by `JoinedGroup` with
    `MEMBER_ID_REQUIRED` and the id ``<client_id>-<new_id>``, with which the member joins (KIP-394):
    so a lost answer leaves no ghost in the group. A member whose answer does not come repeats its
    request as it was (`JoinGroup.sequence` too), every heartbeat interval: repeating is harmless
    and keeps it alive. A member that is silent for its session timeout is removed, also while it
    waits.
    """

    def __init__(
        self,
        settings: CoordinatorSettings = DEFAULTS,
        *,
        next_leader: Callable[[Sequence[str]], str] = itemgetter(0),
    ) -> None:
        """`next_leader`: one of the member ids it is given, the longest-standing first, when the
        leader is gone."""
        self._settings = settings
        self._next_leader = next_leader
        self._groups: dict[str, _Group] = {}

    def handle(self, now_ms: int, request: GroupRequest, new_id: str = "") -> list[GroupResponse]:
        """Responses to send, to the requester and to others, by their `group` and `member_id`.

        Args:
            now_ms: never less than in the call before.
            request: of any group; a group comes to be with its first join.
            new_id: a text that is given once and never again, such as a UUID. Needed when `request`
                is a `JoinGroup` with an empty member id, and ignored for all others.

        Raises:
            ValueError: a first join without `new_id`. Nothing has changed.
        """
        if isinstance(request, JoinGroup) and not (request.member_id or new_id):
            raise ValueError(
                "JoinGroup has an empty member id and new_id is empty: expected in new_id the part "
                "of the member's id that is given to no other member"
            )
        responses = self.tick(now_ms)
        group = self._groups.get(request.group)
        if group is None:
            group = _Group(request.group)
            if isinstance(request, JoinGroup):
                self._groups[request.group] = group
        match request:
            case JoinGroup():
                return responses + self._on_join(now_ms, group, request, new_id)
            case SyncGroup():
                return responses + self._on_sync(now_ms, group, request)
            case Heartbeat():
                return responses + self._on_heartbeat(now_ms, group, request)
            case LeaveGroup():
                return responses + self._on_leave(now_ms, group, request)
            case _:
                assert_never(request)

    def tick(self, now_ms: int) -> list[GroupResponse]:
        """Ends sessions and rounds whose time is over. `handle` does it too."""
        responses: list[GroupResponse] = []
        for group in self._groups.values():
            responses += self._tick_group(now_ms, group)
        return responses

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `tick`; None: nothing is waited for."""
        return min(
            (at for group in self._groups.values() for at in _deadlines(group)), default=None
        )

    def generation(self, group: str) -> int:
        """0 for a group never heard of."""
        found = self._groups.get(group)
        return found.generation if found else 0

    def members(self, group: str) -> tuple[str, ...]:
        """Member ids, the longest-standing first."""
        found = self._groups.get(group)
        return tuple(found.members) if found else ()

    def leader(self, group: str) -> str:
        """Member id of the leader of the last generation, if it still is a member, else empty."""
        found = self._groups.get(group)
        return found.leader if found and found.leader in found.members else ""

    def state(self, group: str) -> GroupState:
        found = self._groups.get(group)
        return found.state if found else GroupState.EMPTY

    def is_member(self, group: str, member_id: str) -> bool:
        """Guards the initialisation of producers: who was removed is shut out. As of the last
        `handle` or `tick`."""
        return member_id in self.members(group)

    def check(self, group: str, member_id: str, generation: int) -> GroupError | None:
        """Guards offset commits: None when `member_id` may act in the name of `generation`.

        It still may while the next round is in preparation. As of the last `handle` or `tick`.
        """
        found = self._groups.get(group)
        if found is None or member_id not in found.members:
            return GroupError.UNKNOWN_MEMBER_ID
        if generation != found.generation:
            return GroupError.ILLEGAL_GENERATION
        if found.state is GroupState.COMPLETING:
            return GroupError.REBALANCE_IN_PROGRESS
        return None

    def remove_members(self) -> None:
        """Empty every group, keeping its generation: after a restart of the clock no deadline
        means anything."""
        for group in self._groups.values():
            group.members.clear()
            group.promised.clear()
            group.state = GroupState.EMPTY

    def to_plain(self) -> dict[str, Any]:
        """All state as what JSON can carry."""
        return {name: wire.plain(group) for name, group in self._groups.items()}

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], settings: CoordinatorSettings = DEFAULTS
    ) -> "Coordinator":
        """Raises `WireError` if `plain` is not what `to_plain` gave."""
        made = cls(settings)
        made._groups = {name: wire.from_plain(_Group, raw) for name, raw in plain.items()}
        return made

    # -- requests --

    def _on_join(
        self, now_ms: int, group: _Group, request: JoinGroup, new_id: str
    ) -> list[GroupResponse]:
        member = group.members.get(request.member_id)
        if not _is_consistent(group, request):
            return [_refused(request, GroupError.INCONSISTENT_GROUP_PROTOCOL)]
        if not request.member_id:
            member_id = f"{request.client_id}-{new_id}"
            group.promised[member_id] = now_ms + request.session_timeout_ms
            return [_refused(request, GroupError.MEMBER_ID_REQUIRED, member_id)]
        if member is None and request.member_id not in group.promised:
            return [_refused(request, GroupError.UNKNOWN_MEMBER_ID)]
        if member is not None and 0 < request.sequence <= member.sequence:
            return self._on_repeated_join(now_ms, group, member, request.sequence)
        group.promised.pop(request.member_id, None)
        # Assigning to a key that is there keeps its place: who stays keeps its standing.
        group.members[request.member_id] = _Member(
            member_id=request.member_id,
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            deadline_ms=now_ms + request.session_timeout_ms,
            sequence=request.sequence,
            syncing=member.syncing if member else False,
        )
        group.protocol_type = request.protocol_type
        if group.state is not GroupState.PREPARING:
            return self._prepare(now_ms, group, joined=request.member_id)
        return self._complete_if_due(now_ms, group)

    def _on_repeated_join(
        self, now_ms: int, group: _Group, member: _Member, sequence: int
    ) -> list[GroupResponse]:
        """The answer was lost, or is still to come, or the request was slow.

        A slow one, older than the last join or answered already, says what the member held then.
        To count it would give away what the member holds by now.
        """
        if sequence < member.sequence or member.confirmed:
            return []
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.PREPARING:
            # A round may have ended meanwhile, and its answer to this member may have been lost.
            member.joining = True
            return self._complete_if_due(now_ms, group)
        return [group.joined(member)]

    def _on_sync(self, now_ms: int, group: _Group, request: SyncGroup) -> list[GroupResponse]:
        member = group.members.get(request.member_id)
        error = _error(group, member, request.generation)
        if member is None or error is not None:
            return [SyncedGroup(group.name, request.member_id, request.generation, error=error)]
        member.deadline_ms = now_ms + member.session_timeout_ms
        member.confirmed = True
        if group.state is GroupState.STABLE:
            return [group.synced(member)]
        member.syncing = True
        if request.member_id != group.leader:
            return []
        for other in group.members.values():
            other.assignment = request.assignments.get(other.member_id, b"")
        group.state = GroupState.STABLE
        return [group.synced(other) for other in group.members.values() if other.syncing]

    def _on_heartbeat(self, now_ms: int, group: _Group, request: Heartbeat) -> list[GroupResponse]:
        member = group.members.get(request.member_id)
        if member is not None:
            # Also one that missed the end of a round is alive; the error tells it to join.
            member.deadline_ms = now_ms + member.session_timeout_ms
            member.confirmed = member.confirmed or request.generation == group.generation
        return [
            HeartbeatAnswered(
                group.name,
                request.member_id,
                request.generation,
                _error(group, member, request.generation),
                request.sent_ms,
            )
        ]

    def _on_leave(self, now_ms: int, group: _Group, request: LeaveGroup) -> list[GroupResponse]:
        """Not answered: who left no longer listens."""
        group.promised.pop(request.member_id, None)
        return self._remove(now_ms, group, [request.member_id])

    # -- rounds --

    def _tick_group(self, now_ms: int, group: _Group) -> list[GroupResponse]:
        for member_id in [name for name, at in group.promised.items() if at <= now_ms]:
            del group.promised[member_id]
        silent = [m.member_id for m in group.members.values() if m.deadline_ms <= now_ms]
        responses = self._remove(now_ms, group, silent)
        if group.state is GroupState.COMPLETING and group.latest_ms <= now_ms:
            responses += self._remove(
                now_ms, group, [m.member_id for m in group.members.values() if not m.syncing]
            )
        return responses + self._complete_if_due(now_ms, group)

    def _remove(self, now_ms: int, group: _Group, member_ids: list[str]) -> list[GroupResponse]:
        gone = [group.members.pop(member_id, None) for member_id in member_ids]
        if not any(gone):
            return []
        if not group.members:
            group.state = GroupState.EMPTY
            return []
        if group.state is GroupState.PREPARING:
            return self._complete_if_due(now_ms, group)
        return self._prepare(now_ms, group, joined="")

    def _prepare(self, now_ms: int, group: _Group, joined: str) -> list[GroupResponse]:
        """Begin a round, of which `joined` is a part already; everybody else must join again."""
        was_empty = group.state is GroupState.EMPTY
        responses: list[GroupResponse] = [
            group.synced(member, GroupError.REBALANCE_IN_PROGRESS)
            for member in group.members.values()
            if member.syncing
        ]
        for member in group.members.values():
            member.joining = member.member_id == joined
        group.state = GroupState.PREPARING
        group.earliest_ms = now_ms + (self._settings.initial_rebalance_delay_ms if was_empty else 0)
        group.latest_ms = max(
            group.earliest_ms,
            now_ms + max(member.rebalance_timeout_ms for member in group.members.values()),
        )
        return responses + self._complete_if_due(now_ms, group)

    def _complete_if_due(self, now_ms: int, group: _Group) -> list[GroupResponse]:
        if group.state is not GroupState.PREPARING or now_ms < group.earliest_ms:
            return []
        late = [name for name, member in group.members.items() if not member.joining]
        if late and now_ms < group.latest_ms:
            return []
        for member_id in late:
            del group.members[member_id]
        if not group.members:
            group.state = GroupState.EMPTY
            return []
        group.state = GroupState.COMPLETING
        group.generation += 1
        group.protocol = group.vote()
        if group.leader not in group.members:
            group.leader = self._next_leader(tuple(group.members))
        members = list(group.members.values())
        group.latest_ms = now_ms + max(member.rebalance_timeout_ms for member in members)
        for member in members:
            member.joining = False
            member.confirmed = False
            member.assignment = b""
            member.deadline_ms = now_ms + member.session_timeout_ms
        return [group.joined(member) for member in members]


def _is_consistent(group: _Group, request: JoinGroup) -> bool:
    """Whether the joiner speaks this group's kind of protocol and one that all others speak."""
    offered = {name for name, _ in request.protocols}
    others = any(member_id != request.member_id for member_id in group.members)
    if not others:
        return bool(offered)
    if request.protocol_type != group.protocol_type:
        return False
    return not offered.isdisjoint(group.common_protocols(but=request.member_id))


def _error(group: _Group, member: _Member | None, generation: int) -> GroupError | None:
    """What a sync or heartbeat in the name of `generation` is refused for."""
    if member is None:
        return GroupError.UNKNOWN_MEMBER_ID
    if generation != group.generation:
        return GroupError.ILLEGAL_GENERATION
    if group.state is GroupState.PREPARING:
        return GroupError.REBALANCE_IN_PROGRESS
    return None


def _refused(request: JoinGroup, error: GroupError, member_id: str = "") -> JoinedGroup:
    return JoinedGroup(
        group=request.group,
        member_id=member_id or request.member_id,
        generation=-1,
        protocol="",
        leader="",
        error=error,
        sequence=request.sequence,
    )


def _deadlines(group: _Group) -> Iterator[int]:
    yield from group.promised.values()
    yield from (member.deadline_ms for member in group.members.values())
    if group.state is GroupState.PREPARING:
        waits = all(member.joining for member in group.members.values())
        yield group.earliest_ms if waits else group.latest_ms
    elif group.state is GroupState.COMPLETING:
        yield group.latest_ms
