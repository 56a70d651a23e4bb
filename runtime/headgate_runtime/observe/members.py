"""Checks whether the members of a group can be reached at the addresses that they advertise.

Workers forward changes to the leader by HTTP, so a leader with a wrong address stops every change.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ABOUT_ADDRESS: Final = (
    "{} could not be reached from here: {}. Workers pass changes to each other at this address: "
    "check rest.advertised.host.name, rest.advertised.port and rest.advertised.listener of that "
    "worker, its listeners, and the network"
)


class TriedMember(NamedTuple):
    role: str
    """``leader`` or ``member``."""
    name: str
    url: str
    reason: str | None
    """Why it could not be reached. None: it answered."""
    ahead_s: float | None = None
    """How far its clock is ahead of this one, in seconds. None: it is not known."""


def tried_members(worker: Mapping[str, str], group: Mapping[str, Any]) -> list[TriedMember]:
    """Return every member whose address is known, after a request to it.

    Raises:
        ValueError: the worker's REST settings are invalid.
        OSError: files of its TLS settings cannot be used.
    """
    from headgate_rest import RestSettings, try_to_reach

    names = {each["url"]: each["name"] for each in group["members"] if each["url"]}
    if not names:
        return []
    return [
        TriedMember(
            "leader" if names[url] == group["leader"] else "member",
            names[url],
            url,
            reached.reason,
            reached.ahead_s,
        )
        for url, reached in try_to_reach(RestSettings.of(worker), names).items()
    ]


def findings(worker: Mapping[str, str], group: Mapping[str, Any]) -> list[str]:
    """Return a line for each member that could not be reached, for `headgate observe`."""
    try:
        tried = tried_members(worker, group)
    except (ValueError, OSError):
        return []
    return [
        f"{each.role} {each.name}: {ABOUT_ADDRESS.format(each.url, each.reason)}"
        for each in tried
        if each.reason is not None
    ]
