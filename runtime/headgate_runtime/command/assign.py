"""`headgate assign --policy NAME`: rounds of an assignment policy, one JSON object per line.

A line is one round, or only a reset:

    {"reset": true, "max_delay_ms": 300000}

    {"config": {"connectors": {"orders": 2}},
     "members": {"w1": {"connectors": ["orders"], "tasks": ["orders-0"]}, "w2": {}}}

Members are in join order, and a member's work is in the order in which it reported it. Defaults of
fields that a line leaves out:

    max_delay_ms               as in the line before; 300000 at first
    now_ms                     as before; 0 at first
    config                     as before; {"connectors": {}} at first
    config.offset              0
    config.inconsistent        none; connectors listed there are configured, with no tasks
    members.<id>.offset        0
    protocol                   the best; no policy takes notice of it
    leader                     the first member
    generation                 1 more than before
    last_completed_generation  the generation before, or with "sync_failed": true (the sync of the
                               round before failed) the last completed one as of that round

Other fields are ignored. The answer says what is newly assigned to each member (`assigned`; with
`eager` all of its work), what it must stop, the delay, and `error`. The error is 1 if a member has
read more of the config topic than the leader's snapshot, which is that of `config`.

The memory of a policy is kept between lines. With `connect` every leader remembers its own rounds,
as Java's workers do. `kip415` is given the previous leader's memory, of which it keeps the end of a
delay, as if members had reported it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from headgate.assignment import POLICIES
from headgate.assignment.model import MemberAssignment, MemberWork, Policy, Round, RoundInput
from headgate.ids import TaskId

LATER_POLICIES: Final = ("headgate",)
MEMORY_PER_LEADER: Final = {"connect"}
"""Policies whose new leader learns nothing from the previous one."""
DELAY_MS_DEFAULT: Final = 300_000
TASK_COUNT_MAX: Final = 2**31 - 1


class AssignError(ValueError):
    """The policy does not exist, or a line is invalid. The text is for the user."""


def assign_lines(policy: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the answer to each line, as it is read. Blank lines are skipped.

    Raises:
        AssignError: names the line and what was expected. The lines before it are answered.
    """
    chosen = _policy(policy)
    per_leader = policy in MEMORY_PER_LEADER
    rounds = _Rounds(chosen, per_leader)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            asked = _object(_parsed(line), "the line")
            if _bool(asked, "reset"):
                rounds = _Rounds(chosen, per_leader)
            answer = rounds.answer(asked)
        except ValueError as error:
            raise AssignError(f"line {number}: {error}") from error
        yield json.dumps(answer, separators=(",", ":"), ensure_ascii=False)


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AssignError(f"not JSON ({error}): {line.strip()[:80]}") from None


def _policy(name: str) -> Policy:
    found = POLICIES.get(name)
    if found is not None:
        return found
    there = ", ".join(sorted(POLICIES))
    if name in LATER_POLICIES:
        raise AssignError(f"policy {name!r} is not part of this version; there is {there}")
    raise AssignError(f"no policy {name!r}; there is {there}")


@dataclass
class _Rounds:
    policy: Policy
    per_leader: bool
    delay_ms_max: int = DELAY_MS_DEFAULT
    now_ms: int = 0
    generation: int = 0
    completed: int = -1
    config: Mapping[str, Any] = field(default_factory=dict)
    memories: dict[str, object] = field(default_factory=dict)
    """Memory by leader, or that of the last leader."""

    def answer(self, line: dict[str, Any]) -> dict[str, Any]:
        self.delay_ms_max = _int(line, "max_delay_ms", self.delay_ms_max)
        if self.delay_ms_max < 0:
            raise AssignError(f"max_delay_ms is {self.delay_ms_max}, expected 0 or more")
        if not set(line) - {"reset", "max_delay_ms"}:
            return {"ok": True}
        return self._round(line)

    def _round(self, line: dict[str, Any]) -> dict[str, Any]:
        self.config = _object(line.get("config", self.config), "config")
        raw = _object(line.get("members", {}), "members")
        if not raw:
            raise AssignError("members is empty or missing, expected at least one member")
        members = {name: _object(entry, f"members.{name}") for name, entry in raw.items()}
        leader = line.get("leader", next(iter(members)))
        if leader not in members:
            raise AssignError(f"leader {leader!r} is not a member: {', '.join(members)}")
        previous = self.generation
        self.now_ms = _int(line, "now_ms", self.now_ms)
        self.generation = _int(line, "generation", previous + 1)
        if not _bool(line, "sync_failed"):
            self.completed = previous
        self.completed = _int(line, "last_completed_generation", self.completed)
        round_input = RoundInput(
            members=tuple(_member(name, entry) for name, entry in members.items()),
            leader=leader,
            generation=self.generation,
            last_completed_generation=self.completed,
            connectors=_connectors(self.config),
            delay_ms_max=self.delay_ms_max,
            now_ms=self.now_ms,
        )
        if max(_int(entry, "offset", 0) for entry in members.values()) > _int(
            self.config, "offset", 0
        ):
            # The leader is behind, so the policy does not run and remembers an older generation.
            nothing = {name: MemberAssignment() for name in members}
            return _answer(Round(nothing, 0, None), error=1)
        remembers = leader if self.per_leader else ""
        done = self.policy(round_input, self.memories.get(remembers))
        self.memories[remembers] = done.memory
        return _answer(done, error=0)


def _answer(done: Round, error: int) -> dict[str, Any]:
    return {
        "members": {
            name: {
                "assigned": _work(change.assigned_connectors, change.assigned_tasks),
                "revoked": _work(change.revoked_connectors, change.revoked_tasks),
                "delay": done.delay_ms,
                "error": error,
            }
            for name, change in done.members.items()
        }
    }


def _work(connectors: Iterable[str], tasks: Iterable[TaskId]) -> dict[str, list[str]]:
    return {"connectors": list(connectors), "tasks": [str(task) for task in tasks]}


def _member(name: str, entry: Mapping[str, Any]) -> MemberWork:
    tasks = tuple(TaskId.parse(text) for text in _names(entry, "tasks", f"members.{name}"))
    for task in tasks:
        if task.task > TASK_COUNT_MAX:
            raise AssignError(f"members.{name}: {task} has a number beyond {TASK_COUNT_MAX}")
    return MemberWork(name, _names(entry, "connectors", f"members.{name}"), tasks)


def _connectors(config: Mapping[str, Any]) -> dict[str, int]:
    connectors = _object(config.get("connectors", {}), "config.connectors")
    found = dict.fromkeys(_names(config, "inconsistent", "config"), 0)
    for name, count in connectors.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < TASK_COUNT_MAX:
            raise AssignError(f"config.connectors.{name} is {count!r}, expected a number of tasks")
        found.setdefault(name, count)
    return found


def _names(raw: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AssignError(f"{where}.{key} is {value!r}, expected a list of strings")
    return tuple(value)


def _int(raw: Mapping[str, Any], key: str, default: int) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise AssignError(f"{key} is {value!r}, expected an integer")
    return value


def _bool(raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise AssignError(f"{key} is {value!r}, expected true or false")
    return value


def _object(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise AssignError(f"{where} is {raw!r}, expected a JSON object")
    return cast(dict[str, Any], raw)
