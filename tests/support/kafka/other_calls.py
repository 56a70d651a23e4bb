"""Calls of a user that change no config: target states, restarts and offsets.

The answers to the calls are compared with the topics.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, Final

import httpx

from headgate.topics.config_events import (
    ConfigEvent,
    RestartRequested,
    TargetStateChanged,
    TargetStateRemoved,
)
from headgate_grpc.client import Client, HeadgateError
from headgate_grpc.v1 import connector_pb2

UNKNOWN_REASONS: Final = ("", "OUTCOME_UNKNOWN", "INTERNAL")
STATES: Final = ("STOPPED", "STOPPED", "PAUSED", "STARTED")
"""Target states by the kind of the call. Only a STOPPED connector's offsets can be changed."""
WORDS: Final = {"STOPPED": "stop", "PAUSED": "pause", "STARTED": "resume"}
POSITIONS = count(1)


class Told(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def told_by(answer: httpx.Response) -> Told:
    if answer.is_success:
        return Told.DONE
    return Told.UNKNOWN if answer.status_code == 500 else Told.REFUSED


@dataclass(frozen=True, slots=True)
class Asked:
    name: str
    value: Any
    """The target state or position that the call asked for. None: that it is removed."""
    told: Told
    writes: bool = True
    """False for a stop, because stopping a connector that is stopped already writes nothing."""


class OtherCalls:
    """Calls of one user, with their answers.

    Args:
        file: the file of the connectors' source. Each position in it is asked for once.
    """

    def __init__(self, file: str) -> None:
        self._partition = {"filename": file}
        self.target_states: list[Asked] = []
        """Of creations, too, which ask for STOPPED, and of deletions."""
        self.restarts: list[Asked] = []
        self.offsets: list[Asked] = []
        self.calls = Counter[str]()

    def ask(self, http: httpx.Client, grpc: Client, name: str, kind: int, *, by_grpc: bool) -> Told:
        """Make a call of one of eight kinds."""
        path = f"/connectors/{name}"
        if kind < 4:
            state = STATES[kind]
            word = WORDS[state]
            told = _told(
                by_grpc,
                lambda: getattr(grpc, word)(name),
                lambda: http.put(f"{path}/{word}"),
            )
            self.target_states.append(Asked(name, state, told, writes=state != "STOPPED"))
        elif kind == 4:
            word = "restart"
            told = _told(
                by_grpc,
                lambda: grpc.restart(name, include_tasks=True),
                lambda: http.post(f"{path}/restart", params={"includeTasks": "true"}),
            )
            self.restarts.append(Asked(name, "", told))
        elif kind < 7:
            word, position = "alter", next(POSITIONS)
            one: dict[str, Any] = {
                "partition": self._partition,
                "offset": {"position": position},
            }
            shown = connector_pb2.ConnectorOffset(
                **{f"{part}_json": json.dumps(value) for part, value in one.items()}
            )
            told = _told(
                by_grpc,
                lambda: grpc.alter_offsets(name, [shown]),
                lambda: http.patch(f"{path}/offsets", json={"offsets": [one]}),
            )
            self.offsets.append(Asked(name, position, told))
        else:
            word = "reset"
            told = _told(
                by_grpc, lambda: grpc.reset_offsets(name), lambda: http.delete(f"{path}/offsets")
            )
            self.offsets.append(Asked(name, None, told))
        self.calls[f"{word} {told}"] += 1
        return told

    # -- what the topics say --

    def check(self, events: Sequence[ConfigEvent], offsets: Sequence[tuple[str, Any]]) -> None:
        """Compare the answers with the topics. Raises AssertionError if an acknowledged call is
        lost, if a call was done twice, or if a refused call was done."""
        states: dict[str, list[Any]] = {}
        restarts: dict[str, list[Any]] = {}
        positions: dict[str, list[Any]] = {}
        for event in events:
            if isinstance(event, TargetStateChanged):
                states.setdefault(event.connector, []).append(event.target_state.value)
            elif isinstance(event, TargetStateRemoved):
                states.setdefault(event.connector, []).append(None)
            elif isinstance(event, RestartRequested):
                restarts.setdefault(event.connector, []).append("")
        for name, position in offsets:
            positions.setdefault(name, []).append(position)
        for name, asked in _by_name(self.target_states):
            made = states.get(name, [])
            # To create a connector removes a target state that came after its deletion.
            # Deletions are counted by the connector's own records.
            _check_counts(f"{name}: target states", asked, made, more=(None,))
            if made.count(None) <= sum(1 for each in asked if _may_be_done(each, None)):
                _check_end(f"{name}: target state", asked, made)
        for name, asked in _by_name(self.restarts):
            _check_counts(f"{name}: restarts", asked, restarts.get(name, []))
        for name, asked in _by_name(self.offsets):
            # A reset of what has no offsets writes nothing.
            _check_counts(f"{name}: offsets", asked, positions.get(name, []), but=(None,))
            _check_end(f"{name}: offset", asked, positions.get(name, []))


def _told(by_grpc: bool, grpc: Callable[[], Any], rest: Callable[[], httpx.Response]) -> Told:
    try:
        if by_grpc:
            grpc()
            return Told.DONE
        return told_by(rest())
    except HeadgateError as error:
        return Told.UNKNOWN if error.reason in UNKNOWN_REASONS else Told.REFUSED
    except httpx.ConnectError:
        return Told.REFUSED
    except httpx.TransportError:
        return Told.UNKNOWN


def _by_name(asked: Sequence[Asked]) -> list[tuple[str, list[Asked]]]:
    names = dict.fromkeys(each.name for each in asked)
    return [(name, [each for each in asked if each.name == name]) for name in names]


def _check_counts(
    what: str,
    asked: list[Asked],
    made: list[Any],
    but: tuple[Any, ...] = (),
    more: tuple[Any, ...] = (),
) -> None:
    """Assert that each value was written as often as it was acknowledged.

    It may be written more often, once for each call with an unknown outcome. Values in `but` may be
    missing, and those in `more` may be there for other reasons.
    """
    found = Counter(made)
    for value in {each.value for each in asked} | set(found):
        least = 0 if value in but else _written(asked, value)
        most = sum(1 for each in asked if _may_be_done(each, value))
        seen = found[value]
        assert seen >= least, f"{what}: {value!r} was acknowledged {least} times, made {seen}"
        assert seen <= most or value in more, f"{what}: {value!r} was made {seen} times, not {most}"


def _may_be_done(asked: Asked, value: Any) -> bool:
    return asked.value == value and asked.told is not Told.REFUSED


def _written(asked: list[Asked], value: Any) -> int:
    """Return how often `value` must have been written.

    Each acknowledged call wrote it, except calls that may have found the value there already.
    """
    known = [each for each in asked if each.told is not Told.REFUSED]
    unknown = sum(1 for each in known if each.value == value and each.told is Told.UNKNOWN)
    written = idle = 0
    for before, each in zip([None, *known], known, strict=False):
        if each.value != value or each.told is not Told.DONE:
            continue
        if each.writes:
            written += 1
        elif before is not None and before.told is Told.DONE and before.value != value:
            idle += 1
    # What nobody knew of may have come in between, and left nothing to write.
    return written + max(0, idle - unknown)


def _check_end(what: str, asked: list[Asked], made: list[Any]) -> None:
    """Assert that the last value is that of the last acknowledged call, or of a call with an
    unknown outcome."""
    done = [each for each in asked if each.told is Told.DONE]
    possible = {each.value for each in asked if each.told is Told.UNKNOWN}
    possible.add(done[-1].value if done else None)
    end = made[-1] if made else None
    assert end in possible, f"{what} ends as {end!r}, expected one of {possible}"
