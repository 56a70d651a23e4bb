"""What the leader of a generation does: everybody's metadata in, everybody's assignment out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headgate.assignment.model import MemberAssignment, MemberWork, Policy, RoundInput, Work
from headgate.ids import TaskId
from headgate.membership.codec_model import Assignment, AssignmentError, Codec, Metadata
from headgate.membership.member_messages import WorkView
from headgate.membership.messages import JoinedGroup


@dataclass(frozen=True)
class Led:
    """One round as its leader computed it. It counts when the leader's sync succeeded."""

    generation: int
    assignments: Mapping[str, bytes]
    urls: Mapping[str, str]
    """By member id."""
    owned: Mapping[str, tuple[tuple[str, ...], tuple[TaskId, ...]]]
    """What each member has from now on."""
    memory: object | None
    """The policy's, for the next round."""

    def owner_url(self, work: Work) -> str | None:
        """Url of the member that has `work`. Cost: O(T) for the first question."""
        owner = self._owners.get(work)
        return None if owner is None else self.urls[owner]

    @cached_property
    def _owners(self) -> Mapping[Work, str]:
        owners: dict[Work, str] = {}
        for member_id, (connectors, tasks) in self.owned.items():
            owners.update(dict.fromkeys(connectors, member_id))
            owners.update(dict.fromkeys(tasks, member_id))
        return owners


@dataclass(frozen=True, slots=True)
class Leader:
    """What the member that leads brings with it into a round."""

    url: str
    delay_left_ms: int
    last_completed_generation: int
    delay_ms_max: int
    memory: object | None


def lead(
    now_ms: int, joined: JoinedGroup, codec: Codec, leader: Leader, view: WorkView, policy: Policy
) -> Led:
    """Compute the round of `joined`, the leader's answer.

    `view` is read once: the offset that is announced is that of the snapshot computed with. It may
    be newer than what the leader reported when it joined. If it is still older than what another
    member has read, nobody is given or loses anything (`CONFIG_MISMATCH`), and the policy does not
    run; its memory stays, for a generation that is no longer the last.

    Raises:
        WireError: a member's metadata cannot be read.
    """
    metadata = {
        member.member_id: codec.decode_metadata(member.metadata) for member in joined.members
    }
    urls = {member_id: data.url for member_id, data in metadata.items()}
    offset = max(data.config_offset for data in metadata.values())
    if view.assignment_offset < offset:
        failed = Assignment(
            AssignmentError.CONFIG_MISMATCH, joined.leader, leader.url, config_offset=offset
        )
        return Led(
            generation=joined.generation,
            assignments=dict.fromkeys(metadata, codec.encode_assignment(failed)),
            urls=urls,
            owned={
                member_id: (data.connectors, data.tasks) for member_id, data in metadata.items()
            },
            memory=leader.memory,
        )
    done = policy(_round_input(now_ms, joined, metadata, leader, view), leader.memory)
    assignments = {
        member_id: codec.encode_assignment(
            Assignment(
                error=AssignmentError.NONE,
                leader=joined.leader,
                leader_url=leader.url,
                config_offset=view.assignment_offset,
                change=done.members[member_id],
                delay_ms=done.delay_ms,
            )
        )
        for member_id in metadata
    }
    owned = {
        member_id: changed(data.connectors, data.tasks, done.members[member_id])
        for member_id, data in metadata.items()
    }
    return Led(joined.generation, assignments, urls, owned, done.memory)


def changed(
    connectors: tuple[str, ...], tasks: tuple[TaskId, ...], change: MemberAssignment
) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
    """What a member that reported `connectors` and `tasks` has after `change`: new work first, as
    Connect orders it."""
    no_connectors, no_tasks = set(change.revoked_connectors), set(change.revoked_tasks)
    return (
        tuple(
            dict.fromkeys(
                (*change.assigned_connectors, *(c for c in connectors if c not in no_connectors))
            )
        ),
        tuple(dict.fromkeys((*change.assigned_tasks, *(t for t in tasks if t not in no_tasks)))),
    )


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
    # Of its own delay the leader knows what is left now; the others said what was when they joined.
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
