"""Log lines about the group: one for each round, and one if members read different config
topics."""

import logging
import time
from collections.abc import Sequence

from headgate.herder.herder import Herder
from headgate.membership.member_messages import Assigned

log = logging.getLogger(__name__)

NAMES_MAX = 20
"""Most connectors, and most tasks, that a line names."""
EVERY_S = 300.0
"""How often the same disagreement is logged again while it lasts, in seconds."""


class RoundLog:
    """Looks at a herder after each command and logs what is new."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._told: Assigned | None = None
        self._again_s: dict[str, float] = {}
        """Disagreements that were logged, and when to log each again. A disagreement may come and
        go."""

    def look(self) -> None:
        assigned = self._herder.assigned
        if assigned is not None and assigned is not self._told:
            self._told = assigned
            # A failed round is followed by another within seconds, perhaps for hours.
            log.log(logging.DEBUG if assigned.failed else logging.INFO, "%s", _shown(assigned))
        disagreement = self._herder.disagreement
        if not disagreement:
            return
        now_s = time.monotonic()
        if now_s >= self._again_s.get(disagreement, 0.0):
            self._again_s = {text: at for text, at in self._again_s.items() if at > now_s}
            self._again_s[disagreement] = now_s + EVERY_S
            log.warning("members of this group read different config topics: %s", disagreement)


def _shown(assigned: Assigned) -> str:
    leader = "this worker" if assigned.is_leader else assigned.leader_url
    if assigned.failed:
        work = "a failed round, which gives nobody anything"
    else:
        connectors = _named("connector", assigned.connectors)
        work = f"this worker has {connectors}, {_named('task', assigned.tasks)}"
    return (
        f"generation {assigned.generation}, protocol {assigned.protocol}, leader {leader}: {work}"
    )


def _named(what: str, names: Sequence[object]) -> str:
    """``2 tasks (a-0, a-1)``"""
    count = f"{len(names)} {what}{'' if len(names) == 1 else 's'}"
    if not names:
        return count
    more = len(names) - NAMES_MAX
    shown = ", ".join(map(str, names[:NAMES_MAX])) + (f" and {more} more" if more > 0 else "")
    return f"{count} ({shown})"
