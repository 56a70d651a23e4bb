"""The policy `eager`: each round assigns everything anew, round robin over the members. It is for
groups whose members stop all their work before they join, as version 0 of the protocol requires.

Source: `EagerAssignor` of connect-runtime 4.3.1. Members and names are sorted by UTF-16 code units.
Connectors are assigned first; the tasks go on with the member after the last connector's.
"""

from types import MappingProxyType

from headgate.assignment.model import MemberAssignment, Round, RoundInput
from headgate.errors import NoMembersError
from headgate.ids import task_ids, utf16_key


def assign(round_input: RoundInput, memory: object | None) -> Round:
    """Assign everything that is configured, whatever the members report.

    Args:
        round_input: Only the members' ids and the configured connectors are used.
        memory: Ignored; the returned round has no memory either.

    Returns:
        For each member all that it is to run, sorted. Nothing is revoked and there is no delay.

    Raises:
        NoMembersError: The round has no members.

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
