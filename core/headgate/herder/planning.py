"""What a set of changed connectors would do to the group's work, for `PlanConnectors`."""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.herder.messages import ErrorKind, Failure, Result, Success
from headgate.ids import TaskId
from headgate.membership.foresight import Move
from headgate.membership.last_round import LastRound
from headgate.topics.config_state import ConfigState

WORK_MAX: Final = 50_000
"""Most connectors and tasks for which moves are predicted. The leader does nothing else meanwhile:
so many take some tenths of a second."""
MOVES_MAX: Final = 10_000
"""Most moves in an answer."""
NOT_LED: Final = "The leader has not completed a round yet, so it cannot tell what would move"
NO_ROUND: Final = "The leader has not completed a round yet, so it cannot tell who is in the group"


def planned_stages(
    state: ConfigState, changes: Mapping[str, int | None]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of tasks of each connector that would be configured, in two stages: once
    the connectors are written, and once they have made their task configs."""
    begin = {name: len(state.tasks(name)) for name in state.connector_names()}
    for name, count in changes.items():
        if count is None:
            begin.pop(name, None)
        else:
            begin.setdefault(name, 0)
    return begin, {**begin, **{name: n for name, n in changes.items() if n is not None}}


def too_many(stages: Sequence[Mapping[str, int]]) -> Failure | None:
    """Return why moves are not predicted for so much work; None: they are."""
    count = max(len(stage) + sum(stage.values()) for stage in stages)
    if count <= WORK_MAX:
        return None
    text = (
        f"There would be {count:,} connectors and tasks; what would move is foreseen for at most "
        f"{WORK_MAX:,}"
    )
    return Failure(ErrorKind.BAD_REQUEST, text)


def group_result(leader_url: str, led: LastRound) -> Result:
    """Return the answer to `DescribeGroup`."""
    given = led.given()
    if given is None:
        return Failure(ErrorKind.NOT_READY, NO_ROUND)
    members = [
        {"url": url, "connectors": len(connectors), "tasks": len(tasks)}
        for url, (connectors, tasks) in sorted(given.items())
    ]
    value = {"leader": leader_url, "generation": led.generation, "members": members}
    return Success(value)


def moves_result(moves: Sequence[Move] | None) -> Result:
    """Return the answer to `ForeseeMoves`. `moves` None: the leader cannot tell yet."""
    if moves is None:
        return Failure(ErrorKind.NOT_READY, NOT_LED)
    shown = [
        {
            "connector": move.work.connector if isinstance(move.work, TaskId) else move.work,
            "task": move.work.task if isinstance(move.work, TaskId) else None,
            "from": move.source,
            "to": move.target,
        }
        for move in moves[:MOVES_MAX]
    ]
    return Success({"moves": shown, "count": len(moves)})
