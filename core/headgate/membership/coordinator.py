"""The group coordinator machine: the members and the generation of each group. Source: Kafka's
classic group protocol.

    EMPTY -----join----> PREPARING: waits until all members have joined, or the round's time is over
    PREPARING ---------> COMPLETING: generation + 1, joins are answered, waits for the leader's sync
    COMPLETING --sync--> STABLE: syncs are answered
    COMPLETING, STABLE --join of a member, leave, silence--> PREPARING, or EMPTY without members

It replaces a broker where there is none: in the embedded transport, which stores its state between
calls (`to_plain`), and in simulation. Differs from Kafka's coordinator on purpose. A member that
waits for its answer must go on sending requests, since there is no connection whose end would
reveal its death. A leader stays leader as long as it is a member. Its successor is the member that
joined first; Kafka takes any.
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
    """Time that the first round of an empty group waits for more members. Kafka's default for
    ``group.initial.rebalance.delay.ms`` is 3000."""


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
    """When the member is removed unless a request of it arrives."""
    sequence: int
    """Sequence number of the member's last join."""
    joining: bool = True
    """Whether the member's join is part of the round in preparation."""
    confirmed: bool = False
    """Whether the member sent a request in this generation, so that it surely got the answer to its
    join."""
    syncing: bool = False
    """Whether the member waits for the leader's sync."""
    assignment: bytes = b""


@dataclass(slots=True)
class _Group:
    name: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    """Number of the last round; kept when the group becomes empty."""
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, _Member] = field(default_factory=lambda: dict[str, _Member]())
    """Members by id, the one that joined first at the front."""
    promised: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    """Member ids that were given out but have not joined yet, and when they expire."""
    earliest_ms: int = 0
    """PREPARING: the round is not completed before this time."""
    latest_ms: int = 0
    """PREPARING: members that have not joined by then are removed. COMPLETING: members that have
    not synced."""

    def joined(self, member: _Member) -> JoinedGroup:
        """Return the answer to the join of a member in the current generation."""
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
        """Return the protocol that most members prefer among those that all of them offer.

        In a tie, the protocol wins that the longest-standing member prefers.
        """
        common = self.common_protocols()
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in votes)] += 1
        return max(votes, key=lambda name: votes[name])

    def common_protocols(self, but: str = "") -> list[str]:
        """Return the protocols that every member (except `but`) offers, in the order of the
        longest-standing member."""
        offers = [
            [name for name, _ in member.protocols]
            for member in self.members.values()
            if member.member_id != but
        ]
        return [name for name in offers[0] if all(name in offer for offer in offers[1:])]


class Coordinator:
    """The coordinator of many groups. All times are of one monotonic clock, in milliseconds.

    A `JoinGroup` with an empty member id is answered at once by `JoinedGroup` with
    `MEMBER_ID_REQUIRED` and the id ``<client_id>-<new_id>``, with which the member joins (KIP-394).
    So a lost answer leaves no dead member in the group. A member that gets no answer repeats its
    request unchanged (with the same `JoinGroup.sequence`) at every heartbeat interval. Repeating is
    harmless and keeps it alive. A member that is silent for its session timeout is removed, even
    while it waits.
    """

    def __init__(
        self,
        settings: CoordinatorSettings = DEFAULTS,
        *,
        next_leader: Callable[[Sequence[str]], str] = itemgetter(0),
    ) -> None:
        """Make a coordinator without groups. `next_leader` chooses the successor of a leader that
        is gone, from member ids with the longest-standing first."""
        self._settings = settings
        self._next_leader = next_leader
        self._groups: dict[str, _Group] = {}

    def handle(self, now_ms: int, request: GroupRequest, new_id: str = "") -> list[GroupResponse]:
        """Handle a request and return responses to send, to the requester and to others, by their
        `group` and `member_id`.

        Args:
            now_ms: Never less than in the previous call.
            request: A request to any group; a group is created by its first join.
            new_id: A text that is never passed twice, such as a UUID. Needed if `request` is a
                `JoinGroup` with an empty member id, else ignored.

        Raises:
            ValueError: A first join came without `new_id`. Nothing has changed.
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
        """End sessions and rounds whose time is over; return the responses. `handle` does this
        too."""
        responses: list[GroupResponse] = []
        for group in self._groups.values():
            responses += self._tick_group(now_ms, group)
        return responses

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `tick`; None if nothing is waited for."""
        return min(
            (at for group in self._groups.values() for at in _deadlines(group)), default=None
        )

    def generation(self, group: str) -> int:
        """Return the generation of a group; 0 for an unknown group."""
        found = self._groups.get(group)
        return found.generation if found else 0

    def members(self, group: str) -> tuple[str, ...]:
        """Return the member ids of a group, the longest-standing first."""
        found = self._groups.get(group)
        return tuple(found.members) if found else ()

    def leader(self, group: str) -> str:
        """Return the member id of the last generation's leader; empty if it is no longer a
        member."""
        found = self._groups.get(group)
        return found.leader if found and found.leader in found.members else ""

    def state(self, group: str) -> GroupState:
        found = self._groups.get(group)
        return found.state if found else GroupState.EMPTY

    def is_member(self, group: str, member_id: str) -> bool:
        """Return whether `member_id` is a member, as of the last `handle` or `tick`. A producer may
        be initialised only for a member; the producers of removed members are fenced."""
        return member_id in self.members(group)

    def check(self, group: str, member_id: str, generation: int) -> GroupError | None:
        """Return None if `member_id` may commit offsets in the name of `generation`, else the
        error.

        It may also do so while the next round is in preparation. The answer is as of the last
        `handle` or `tick`.
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
        """Remove all members of every group and keep the generations: after a restart of the clock
        no deadline is valid."""
        for group in self._groups.values():
            group.members.clear()
            group.promised.clear()
            group.state = GroupState.EMPTY

    def to_plain(self) -> dict[str, Any]:
        """Return all state as plain values that JSON can carry."""
        return {name: wire.plain(group) for name, group in self._groups.items()}

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], settings: CoordinatorSettings = DEFAULTS
    ) -> "Coordinator":
        """Make a coordinator from `plain`. Raises `WireError` if `to_plain` did not make it."""
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
        # Assigning to an existing key keeps its place in the dict, so a member that stays keeps its
        # seniority.
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
        """Handle a repeated join: the answer was lost or is still to come, or the request was slow.

        A slow request, older than the last join or already answered, reports what the member held
        back then. If it counted, work that the member holds by now would be assigned to others.
        """
        if sequence < member.sequence or member.confirmed:
            return []
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.PREPARING:
            # A round may have ended since, and its answer to this member may have been lost.
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
            # A member that missed the end of a round is alive too; the error tells it to join.
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
        """Remove a member. There is no answer, since a member that left no longer listens."""
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
        """Begin a round that already has the join of `joined`; all other members must join
        again."""
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
    """Return whether the request has the group's protocol type and offers a protocol that all other
    members offer."""
    offered = {name for name, _ in request.protocols}
    others = any(member_id != request.member_id for member_id in group.members)
    if not others:
        return bool(offered)
    if request.protocol_type != group.protocol_type:
        return False
    return not offered.isdisjoint(group.common_protocols(but=request.member_id))


def _error(group: _Group, member: _Member | None, generation: int) -> GroupError | None:
    """Return why a sync or heartbeat in the name of `generation` is refused; None if it is not."""
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
