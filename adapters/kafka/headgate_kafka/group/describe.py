"""Description of a group by its coordinator, for clients that are not members. Source:
DescribeGroups.

The response does not have the generation of a classic group. The workers' statuses have it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeGroupsRequest

from headgate.membership.messages import Heartbeat
from headgate.ports import TransportError
from headgate_kafka.failures import NO_RIGHT
from headgate_kafka.group.link import CodeError, Link, NotLetInError
from headgate_kafka.group.port import PASSING, refused
from headgate_kafka.group.wire import decode, encode
from headgate_kafka.login.principal import of_kafka_python

UNKNOWN_GROUP: Final = 69
"""Newer brokers' error code for a group that does not exist. Older brokers describe it as Dead."""
_RETRY_S: Final = 0.1
_Ask: TypeAlias = Callable[[str], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    client_id: str
    host: str
    """Address as the broker writes it: ``/10.0.0.7``."""
    metadata: bytes
    """Metadata of the member's join for the current generation, encoded in the group's protocol."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group: str
    state: str
    """The broker's name for it: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead."""
    protocol_type: str
    """``connect`` for workers. Empty if the group does not exist."""
    protocol: str
    """The protocol that all members share. Empty while there is none."""
    members: tuple[DescribedMember, ...]
    """The members. While a round is under way their metadata is empty."""
    coordinator: str
    """Address of the coordinator."""
    authorized_operations: frozenset[int] = frozenset()
    """Codes of Kafka's ACL operations that the asking principal may perform on the group."""


class GroupDescriber:
    """A client that describes groups. It keeps its connections from call to call."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """
        Args:
            settings: kafka-python's arguments, as for `KafkaGroup`.
        """
        self._link = Link(settings)
        self._principal = of_kafka_python(settings)

    def describe(self, group: str, timeout_ms: int = 10_000) -> DescribedGroup:
        """Return the coordinator's description of a group.

        Raises:
            GroupRefusedError: this principal may not describe the group.
            TransportError: no answer in time.
        """
        try:
            found = self._call(self._describe, group, timeout_ms)
        except CodeError as error:
            raise refused(group, self._link.servers, error, self._principal) from None
        assert isinstance(found, DescribedGroup)
        return found

    def refused_read(self, group: str, timeout_ms: int = 10_000) -> str | None:
        """Return why this principal may not be a member of `group`. None: it may.

        It sends the heartbeat of an unknown member, which does not disturb the group. The broker
        checks the permission first, and then answers that it does not know the member.

        Raises:
            TransportError: no answer in time.
        """
        try:
            self._call(self._beat, group, timeout_ms)
        except CodeError as error:
            if error.code not in NO_RIGHT:
                raise TransportError(
                    f"group {group!r} could not be tried at {self._link.servers}: {error}"
                ) from None
            return str(error)
        return None

    def close(self) -> None:
        self._link.close()

    def _call(self, ask: _Ask, group: str, timeout_ms: int) -> object:
        try:
            return self._link.call(self._repeated, ask, group, timeout_ms=timeout_ms)
        except CodeError:
            raise
        except NotLetInError as error:
            raise refused(group, self._link.servers, error, self._principal) from None
        except (KafkaError, OSError, TimeoutError) as error:
            raise TransportError(
                f"nothing is known of group {group!r} at {self._link.servers}: {error}"
            ) from None

    async def _repeated(self, ask: _Ask, group: str) -> object:
        while True:
            try:
                return await ask(group)
            except CodeError as error:
                if error.code not in PASSING:
                    raise
                await self._link.sleep(_RETRY_S)

    async def _beat(self, group: str) -> None:
        coordinator = await self._link.find(group)
        stranger = Heartbeat(group, "headgate-doctor", 0, sent_ms=0)
        decode(stranger, await self._link.ask(coordinator.quick, encode(stranger)))

    async def _describe(self, group: str) -> DescribedGroup:
        coordinator = await self._link.find(group)
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        response = await self._link.ask(coordinator.quick, request)
        found = response.groups[0]
        if found.error_code and found.error_code != UNKNOWN_GROUP:
            raise CodeError("DescribeGroups", found.error_code)
        return DescribedGroup(
            group=group,
            state=found.group_state or "Dead",
            protocol_type=found.protocol_type or "",
            protocol=found.protocol_data or "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    client_id=member.client_id,
                    host=member.client_host,
                    metadata=bytes(member.member_metadata or b""),
                    assignment=bytes(member.member_assignment or b""),
                )
                for member in found.members
            ),
            coordinator=coordinator.address,
            authorized_operations=frozenset(map(int, found.authorized_operations or ())),
        )
