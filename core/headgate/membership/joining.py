"""The join request of a member, with the same content in every protocol that it offers."""

from dataclasses import dataclass, replace

from headgate.ids import TaskId
from headgate.membership.codec import CODECS, PROTOCOL_TYPE, Assignment, Metadata
from headgate.membership.member_messages import MemberSettings, WorkView
from headgate.membership.messages import JoinGroup
from headgate.membership.protocols import offset_read


@dataclass(frozen=True, slots=True)
class Joining:
    """State that a member reports when it joins."""

    member_id: str
    connectors: tuple[str, ...]
    """Connectors that the member holds, is still stopping, or was assigned."""
    tasks: tuple[TaskId, ...]
    last: Assignment | None
    """Last assignment; None if the member never had one or gave it up."""
    delay_left_ms: int
    generation: int
    """`Metadata.generation`."""


def join_request(
    settings: MemberSettings, joining: Joining, view: WorkView, sequence: int
) -> JoinGroup:
    """Return the join request. It holds the metadata once per offered protocol, because protocols
    count offsets differently."""
    metadata = Metadata(
        url=settings.url,
        config_offset=view.assignment_offset,
        connectors=joining.connectors,
        tasks=joining.tasks,
        last=joining.last,
        last_delay_ms=joining.last.delay_ms if joining.last else 0,
        delay_left_ms=joining.delay_left_ms,
        capacity=settings.capacity,
        plugins=settings.plugins,
        config_topic=settings.config_topic,
        generation=joining.generation,
        grpc=settings.grpc,
    )
    return JoinGroup(
        group=settings.group,
        member_id=joining.member_id,
        client_id=settings.client_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            (
                name,
                CODECS[name].encode_metadata(
                    replace(metadata, config_offset=offset_read(name, view))
                ),
            )
            for name in settings.protocols
        ),
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        sequence=sequence,
    )
