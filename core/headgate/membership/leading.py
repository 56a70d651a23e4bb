"""The leader's part of a round: all members' metadata in, all members' assignments out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from headgate.assignment import POLICIES
from headgate.assignment.model import MemberAssignment, MemberWork, RoundInput, Work
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Codec, Metadata
from headgate.membership.member_messages import WorkView
from headgate.membership.messages import GroupMember, JoinedGroup
from headgate.membership.protocols import offset_read, policy_of
from headgate.wire import WireError

W = TypeVar("W", str, TaskId)

Works: TypeAlias = tuple[tuple[str, ...], tuple[TaskId, ...]]
"""Connectors, and tasks."""

_NO_CHANGE: Final = MemberAssignment()


@dataclass(frozen=True)
class Led:
    """One round as its leader computed it. It is valid once the leader's sync succeeded."""

    generation: int
    assignments: Mapping[str, bytes]
    urls: Mapping[str, str]
    """Urls by member id."""
    held: Mapping[str, Works]
    """Work that each member reported, by member id."""
    memory: object | None
    """Memory of the policy for the next round."""
    unreadable: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Members whose metadata cannot be read, and why. They are assigned nothing, and their work
    counts as held by no member."""

    changes: Mapping[str, MemberAssignment] = field(
        default_factory=lambda: dict[str, MemberAssignment]()
    )
    """Assigned and revoked work by member id; empty if the round was refused."""
    configured: Mapping[str, int] | None = None
    """Configured connectors and the number of tasks of each; None if the round was refused."""
    furthest_url: str = ""
    """Url of a member that has read further than this leader; empty if none has."""
    offset: int = -1
    """Config offset in the assignments, in the offset that members of the round's protocol
    compare."""
    read: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    """Config offsets that members had read when they joined, by url."""
    grpc: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """`Metadata.grpc` by url, of members that have one."""
    policy: str = ""
    """Name of the policy that computed the round."""
    round_input: RoundInput | None = None
    """Input of the policy; None if the round was refused."""
    strangers: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Config topics of members that read another one, by url. These members are told so and
    assigned nothing, and work that they hold is no work of this group."""

    def owner_url(self, work: Work) -> str | None:
        """Return the url of the member that has `work`, or None. Cost: O(T) for the first call."""
        owner = self._owners.get(work)
        return None if owner is None else self.urls[owner]

    @cached_property
    def releasing(self) -> frozenset[str]:
        """Connectors of which members reported tasks that are no longer configured. Such a task may
        still be alive until a round in which no member reports it.

        Cost: O(T) for the first access.
        """
        counts = self.configured
        if counts is None:
            return frozenset()
        return frozenset(
            [
                name
                for _, tasks in self.held.values()
                for name, number in tasks
                if number >= counts.get(name, 0)
            ]
        )

    @property
    def leftover(self) -> bool:
        """Whether members keep work that is not configured. Connect's policy does not revoke such
        work if its memory is not of the previous round; it revokes it in the next one.

        Cost: O(T).
        """
        counts = self.configured
        if counts is None:
            return False
        for member_id, (connectors, tasks) in self.held.items():
            change = self.changes.get(member_id, _NO_CHANGE)
            gone: set[Work] = {*change.revoked_connectors, *change.revoked_tasks}
            for name in connectors:
                if name not in counts and name not in gone:
                    return True
            for task in tasks:
                if task.task >= counts.get(task.connector, 0) and task not in gone:
                    return True
        return False

    @cached_property
    def _owners(self) -> Mapping[Work, str]:
        owners: dict[Work, str] = {}
        for member_id, held in self.held.items():
            change = self.changes.get(member_id, _NO_CHANGE)
            for work in chain[Work](*held, change.assigned_connectors, change.assigned_tasks):
                owners[work] = member_id
            for gone in chain[Work](change.revoked_connectors, change.revoked_tasks):
                if owners.get(gone) == member_id:
                    del owners[gone]
        return owners


@dataclass(frozen=True, slots=True)
class Leader:
    """State that the leading member brings into a round."""

    url: str
    delay_left_ms: int
    last_completed_generation: int
    delay_ms_max: int
    memory: object | None
    """Memory of the round's policy from its last round."""
    policy: str
    """Policy for protocols that leave the choice."""
    config_topic: str = ""
    """`MemberSettings.config_topic`."""
    grpc: str = ""
    """`MemberSettings.grpc`."""


def lead(now_ms: int, joined: JoinedGroup, leader: Leader, view: WorkView) -> Led:
    """Compute the round of `joined`, the leader's answer, by the policy of its protocol.

    `view` is read once: the announced offset is that of the snapshot that the round is computed
    with. It may be newer than the offset that the leader reported when it joined. (Java announces
    the highest reported offset, though it computes with its newest snapshot.) If another member has
    read further still, the round is refused (`CONFIG_MISMATCH`): no work is assigned or revoked,
    and the policy does not run. Its memory stays, for a generation that is no longer the last.

    A member whose metadata cannot be read is left out, since it would block the others for ever. A
    member that reads another config topic than the group's is left out too: it is told so, and its
    report is ignored. If that member is the leader itself, it assigns nothing and leaves.
    """
    metadata, unreadable = _read(joined.members, CODECS[joined.protocol])
    topic = _topic_of_group(metadata.values(), leader.config_topic)
    if topic != leader.config_topic:
        return _gives_way(joined, leader, metadata, unreadable, topic)
    strangers = {
        member_id: metadata.pop(member_id)
        for member_id, data in list(metadata.items())
        if topic and data.config_topic not in ("", topic)
    }
    led = _lead(now_ms, joined, leader, view, metadata, unreadable)
    if not strangers:
        return led
    return replace(
        led,
        assignments={**led.assignments, **_told_topic(joined, leader, strangers, topic)},
        strangers={data.url: data.config_topic for data in strangers.values()},
    )


def _topic_of_group(members: Iterable[Metadata], own: str) -> str:
    """Return the config topic that the group belongs to: that of the members that completed a round
    last. If no member has, or the topics are level, it is that of the leader, which reads `own`.

    Brokers may choose any member in place of a leader that left, even one that joined by mistake a
    moment ago; therefore the leader's own topic does not decide.
    """
    if not own:
        return own
    latest = {own: -1}
    for data in members:
        topic = data.config_topic or own
        latest[topic] = max(data.generation, latest.get(topic, -1))
    return max(latest, key=lambda topic: (latest[topic], topic == own, topic))


def _gives_way(
    joined: JoinedGroup,
    leader: Leader,
    metadata: Mapping[str, Metadata],
    unreadable: Mapping[str, str],
    topic: str,
) -> Led:
    """Return a round in which readers of `topic` keep their work, until one of them leads."""
    return Led(
        generation=joined.generation,
        assignments=_told_topic(joined, leader, metadata, topic),
        urls={member_id: data.url for member_id, data in metadata.items()},
        held={},
        memory=leader.memory,
        unreadable=unreadable,
    )


def _lead(
    now_ms: int,
    joined: JoinedGroup,
    leader: Leader,
    view: WorkView,
    metadata: Mapping[str, Metadata],
    unreadable: Mapping[str, str],
) -> Led:
    codec = CODECS[joined.protocol]
    urls = {member_id: data.url for member_id, data in metadata.items()}
    offset = max(data.config_offset for data in metadata.values())
    read = offset_read(joined.protocol, view)
    if read < offset:
        return _refused(joined, leader, metadata, unreadable, offset)
    policy = policy_of(joined.protocol, leader.policy)
    round_input = _round_input(now_ms, joined, metadata, leader, view)
    done = POLICIES[policy](round_input, leader.memory)
    assignments = {
        member_id: codec.encode_assignment(
            Assignment(
                error=AssignmentError.NONE,
                leader=joined.leader,
                leader_url=leader.url,
                config_offset=read,
                change=done.members[member_id],
                delay_ms=done.delay_ms,
                leader_grpc=leader.grpc,
            )
        )
        for member_id in metadata
    }
    return Led(
        generation=joined.generation,
        assignments=assignments,
        urls=urls,
        held=_held(metadata),
        memory=done.memory,
        unreadable=unreadable,
        changes=done.members,
        configured=view.connectors,
        offset=read,
        read={data.url: data.config_offset for data in metadata.values()},
        policy=policy,
        round_input=round_input,
        grpc={data.url: data.grpc for data in metadata.values() if data.grpc},
    )


def _refused(
    joined: JoinedGroup,
    leader: Leader,
    metadata: Mapping[str, Metadata],
    unreadable: Mapping[str, str],
    offset: int,
) -> Led:
    """Return a refused round, in which all members keep their work: some member has read up to
    `offset`, further than the leader."""
    failed = Assignment(
        AssignmentError.CONFIG_MISMATCH, joined.leader, leader.url, config_offset=offset
    )
    return Led(
        generation=joined.generation,
        assignments=dict.fromkeys(metadata, CODECS[joined.protocol].encode_assignment(failed)),
        urls={member_id: data.url for member_id, data in metadata.items()},
        held=_held(metadata),
        memory=leader.memory,
        unreadable=unreadable,
        furthest_url=next(data.url for data in metadata.values() if data.config_offset == offset),
        offset=offset,
        read={data.url: data.config_offset for data in metadata.values()},
    )


def _told_topic(
    joined: JoinedGroup, leader: Leader, members: Mapping[str, Metadata], topic: str
) -> dict[str, bytes]:
    return {
        member_id: CODECS[joined.protocol].encode_assignment(
            Assignment(
                AssignmentError.CONFIG_MISMATCH,
                joined.leader,
                leader.url,
                config_offset=data.config_offset,
                delay_ms=data.delay_left_ms or 0,
                config_topic=topic,
            )
        )
        for member_id, data in members.items()
    }


def _held(metadata: Mapping[str, Metadata]) -> dict[str, Works]:
    return {member_id: (data.connectors, data.tasks) for member_id, data in metadata.items()}


def _read(
    members: Iterable[GroupMember], codec: Codec
) -> tuple[dict[str, Metadata], dict[str, str]]:
    metadata: dict[str, Metadata] = {}
    unreadable: dict[str, str] = {}
    for member in members:
        try:
            metadata[member.member_id] = codec.decode_metadata(member.metadata)
        except WireError as error:
            unreadable[member.member_id] = str(error)
    return metadata, unreadable


def changed(
    connectors: tuple[str, ...], tasks: tuple[TaskId, ...], change: MemberAssignment
) -> Works:
    """Return the work of a member that reported `connectors` and `tasks`, after `change`. New work
    comes first, as in Connect."""
    return (
        _after(connectors, change.assigned_connectors, change.revoked_connectors),
        _after(tasks, change.assigned_tasks, change.revoked_tasks),
    )


def _after(held: Sequence[W], new: Sequence[W], revoked: Sequence[W]) -> tuple[W, ...]:
    if revoked:
        gone = set(revoked)
        held = [work for work in held if work not in gone]
    return tuple(dict.fromkeys(chain(new, held)))


def _round_input(
    now_ms: int,
    joined: JoinedGroup,
    metadata: Mapping[str, Metadata],
    leader: Leader,
    view: WorkView,
) -> RoundInput:
    members = {
        member_id: MemberWork(
            member_id=member_id,
            connectors=data.connectors,
            tasks=data.tasks,
            last_delay_ms=data.last_delay_ms,
            delay_left_ms=data.delay_left_ms,
            capacity=data.capacity,
            plugins=data.plugins,
        )
        for member_id, data in metadata.items()
    }
    # The leader knows how much of its own delay is left now; the other members reported what was
    # left when they joined.
    members[joined.leader] = replace(members[joined.leader], delay_left_ms=leader.delay_left_ms)
    return RoundInput(
        members=tuple(members.values()),
        leader=joined.leader,
        generation=joined.generation,
        last_completed_generation=leader.last_completed_generation,
        connectors=view.connectors,
        delay_ms_max=leader.delay_ms_max,
        now_ms=now_ms,
    )
