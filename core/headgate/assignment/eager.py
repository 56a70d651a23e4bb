"""The policy `eager`: everything anew in each round, dealt around the ring of members. It is for
groups whose members stop all they have before they join, as version 0 of the protocol wants.

Source: `EagerAssignor` of connect-runtime 4.3.1. Members and names count in the order of UTF-16;
connectors are dealt first, and the ring goes on with the tasks where they end.
"""

from types import MappingProxyType

from headgate.assignment.model import MemberAssignment, Round, RoundInput
from headgate.errors import NoMembersError
from headgate.ids import task_ids, utf16_key


def assign(round_input: RoundInput, memory: object | None) -> Round:
    """Deal all that is configured, whatever the members report.

    Args:
        round_input: of it only the members' ids and what is configured count.
        memory: of no use to it; the round has none either.

    Returns:
        Per member all that it is to run, sorted. Nothing is revoked and there is no delay.

    Raises:
        NoMembersError: the round has no members.

    Cost: O(T log T) for T connectors and tasks.
    """
    ids = [member.member_id for member in round_input.members]
    if not ids:
        raise NoMembersError(f"generation {round_input.generation} has no members to assign to")
    connectors = sorted(round_input.connectors, key=utf16_key)
    tasks = [
        task for name in connectors for task in task_ids(name, range(round_input.connectors[name]))
    ]
    size = len(ids)
    dealt: dict[str, MemberAssignment] = {}
    for seat, member_id in enumerate(sorted(ids, key=utf16_key)):
        first_task = (seat - len(connectors)) % size
        dealt[member_id] = MemberAssignment(
            assigned_connectors=tuple(connectors[seat::size]),
            assigned_tasks=tuple(tasks[first_task::size]),
        )
    return Round(MappingProxyType({i: dealt[i] for i in ids}), 0, None)
