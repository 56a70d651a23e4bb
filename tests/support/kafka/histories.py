"""Callers that change connectors through random workers by gRPC and REST.

The answers are compared with the config topic: nothing acknowledged is lost, and nothing is done
twice. Each change of a config carries a number of its own, so the topic shows which changes were
made.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
from support.kafka.cluster import KeptWorker
from support.kafka.other_calls import UNKNOWN_REASONS, Asked, OtherCalls, Told, told_by

from headgate.topics.config_events import ConfigEvent, ConnectorConfigured, ConnectorRemoved
from headgate_grpc.client import Client, HeadgateError
from headgate_grpc.v1 import connector_pb2

CALL_S = 15.0
KINDS = 18
"""Number of kinds of calls: 10 that change and read configs, and 8 of `OtherCalls`."""
SINK = {"connector.class": "FileStreamSink", "file": "/dev/null", "topics": "t"}
STOPPED = connector_pb2.TARGET_STATE_STOPPED
SHARED = "shared"
NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    number: int | None
    """None: a deletion."""
    told: Told


@dataclass
class Place:
    """One worker, with a client of each API."""

    http: httpx.Client
    grpc: Client

    @classmethod
    def of(cls, worker: KeptWorker) -> "Place":
        address = worker.properties["headgate.grpc.listeners"]
        return cls(
            httpx.Client(base_url=worker.url, timeout=CALL_S), Client(address, timeout_s=CALL_S)
        )

    def close(self) -> None:
        self.http.close()
        self.grpc.close()


class Caller:
    """One user. It makes one call after another about its own connectors, and increments a number
    that all callers share."""

    def __init__(
        self, number: int, workers: Sequence[KeptWorker], seed: int, config: Mapping[str, str]
    ) -> None:
        """`config` is for the caller's own connectors, a FileStreamSource that finds no records."""
        self._names = [f"c{number}-{n}" for n in range(3)]
        self._chance = random.Random(f"{seed} {number}")
        self._places = [Place.of(worker) for worker in workers]
        self._offsets = dict[str, tuple[int, int | None]]()
        """Config offset and number of the last change of a name, while no other change of it is
        open."""
        self.changes: list[Change] = []
        self._config = config
        self.other = OtherCalls(config["file"])
        self.added: list[tuple[int, Told]] = []
        """The values that the caller tried to give the shared number."""
        self.calls = Counter[str]()
        self.longest_s = 0.0

    def close(self) -> None:
        for place in self._places:
            place.close()

    def call(self) -> None:
        """Make one call, or read and increment the shared number."""
        place, begun = self._chance.choice(self._places), time.monotonic()
        name, kind = self._chance.choice(self._names), self._chance.randrange(KINDS)
        by_grpc = self._chance.random() < 0.5
        self.calls["grpc" if by_grpc else "rest"] += 1
        if kind < 6:
            self._change(place, name, by_grpc=by_grpc, kind=kind)
        elif kind == 6:
            self._read_back(place.grpc, name)
        elif kind == 7:
            with contextlib.suppress(HeadgateError, httpx.TransportError):
                _ = list(place.grpc.list()) if by_grpc else place.http.get("/connectors")
        elif kind < 10:
            self._add(place, by_grpc=by_grpc)
        else:
            told = self.other.ask(place.http, place.grpc, name, kind - 10, by_grpc=by_grpc)
            self.calls[told] += 1
        self.longest_s = max(self.longest_s, time.monotonic() - begun)

    def _change(self, place: Place, name: str, *, by_grpc: bool, kind: int) -> None:
        number = None if kind == 5 else next(NUMBERS)
        ask = self._ask_grpc if by_grpc else self._ask_rest
        told, offset = ask(place, name, number, kind)
        self.calls[told] += 1
        self.changes.append(Change(name, number, told))
        if kind == 5:
            self.other.target_states.append(Asked(name, None, told))
        elif kind < 2:
            self.other.target_states.append(Asked(name, "STOPPED", told))
        if told is Told.DONE and offset:
            self._offsets[name] = (offset, number)
        elif told is not Told.REFUSED:
            self._offsets.pop(name, None)

    def _ask_grpc(
        self, place: Place, name: str, number: int | None, kind: int
    ) -> tuple[Told, int | None]:
        config = {**self._config, "number": str(number)}
        client: Any = place.grpc
        try:
            if kind == 5:
                client.delete(name)
                return Told.DONE, None
            if kind < 2:
                answer = client.create(name, config, STOPPED)
            elif kind < 4:
                answer = client.put_config(name, config)
            else:
                answer = client.patch_config(name, {"number": str(number)})
        except HeadgateError as error:
            unknown = error.reason in UNKNOWN_REASONS
            return (Told.UNKNOWN if unknown else Told.REFUSED), None
        shown = answer if kind >= 4 or kind < 2 else answer.connector
        return Told.DONE, int(shown.etag or 0)

    def _ask_rest(
        self, place: Place, name: str, number: int | None, kind: int
    ) -> tuple[Told, int | None]:
        config, path = {**self._config, "number": str(number)}, f"/connectors/{name}"
        body: Any = {"name": name, "config": config, "initial_state": "STOPPED"}
        try:
            if kind == 5:
                answer = place.http.delete(path)
            elif kind < 2:
                answer = place.http.post("/connectors", json=body)
            elif kind < 4:
                answer = place.http.put(f"{path}/config", json=config)
            else:
                answer = place.http.patch(f"{path}/config", json={"number": str(number)})
        except httpx.ConnectError:
            return Told.REFUSED, None
        except httpx.TransportError:
            return Told.UNKNOWN, None
        offset = answer.headers.get("Headgate-Config-Offset")
        return told_by(answer), int(offset) if offset and number else None

    def _read_back(self, client: Client, name: str) -> None:
        """Check that a worker that has read far enough shows the change that was acknowledged."""
        offset, number = self._offsets.get(name, (0, None))
        if number is None:
            return
        try:
            found = client.get(name, min_config_offset=offset)
        except HeadgateError as error:
            assert error.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), error
            return
        assert found.config["number"] == str(number), (name, found, number)
        self.calls["read back"] += 1

    def _add(self, place: Place, *, by_grpc: bool) -> None:
        """Read the shared number and increment it, unless another caller has done so meanwhile."""
        try:
            found = place.grpc.get(SHARED)
        except HeadgateError:
            return
        number = int(found.config["number"]) + 1
        config = {**found.config, "number": str(number)}
        try:
            if by_grpc:
                place.grpc.put_config(SHARED, config, etag=found.etag)
                told = Told.DONE
            else:
                etag = {"If-Match": f'"{found.etag}"'}
                path = f"/connectors/{SHARED}/config"
                told = told_by(place.http.put(path, json=config, headers=etag))
        except HeadgateError as error:
            told = Told.UNKNOWN if error.reason in UNKNOWN_REASONS else Told.REFUSED
        except httpx.ConnectError:
            told = Told.REFUSED
        except httpx.TransportError:
            told = Told.UNKNOWN
        self.calls[f"shared {told}"] += 1
        self.added.append((number, told))


# -- what the topic says --


def check(
    callers: Iterable[Caller], events: Sequence[ConfigEvent], offsets: Sequence[tuple[str, Any]]
) -> None:
    """Compare the callers' answers with the topics.

    Raises AssertionError if an acknowledged change is lost, if a change was made twice, or if a
    refused change was made.

    Args:
        events: all events of the config topic.
        offsets: connector and position, None for a reset, of all records of the offsets topic.
    """
    made: dict[str, list[int | None]] = {}
    for event in events:
        if isinstance(event, ConnectorConfigured) and event.changed is None:
            made.setdefault(event.connector, []).append(int(event.config["number"] or ""))
        elif isinstance(event, ConnectorRemoved):
            made.setdefault(event.connector, []).append(None)
    shared = made.pop(SHARED)
    assert shared == list(range(len(shared))), f"a step twice, or left out: {shared}"
    added = [each for caller in callers for each in caller.added]
    done = sorted(number for number, told in added if told is Told.DONE)
    may_be = {number for number, told in added if told is Told.UNKNOWN}
    assert len(done) == len(set(done)), "two were told that they had made the same step"
    assert set(done) <= set(shared) <= {0, *done, *may_be}
    for caller in callers:
        for name in {change.name for change in caller.changes}:
            _check_name([each for each in caller.changes if each.name == name], made.get(name, []))
        caller.other.check(events, offsets)


def _check_name(asked: list[Change], made: list[int | None]) -> None:
    name = asked[0].name
    told = {each.number: each.told for each in asked if each.number is not None}
    numbers = [number for number in made if number is not None]
    assert len(numbers) == len(set(numbers)), f"{name}: done twice: {made}"
    refused = [number for number in numbers if told[number] is Told.REFUSED]
    assert not refused, f"{name}: {refused} were refused, and made"
    lost = [n for n, each in told.items() if each is Told.DONE and n not in numbers]
    assert not lost, f"{name}: {lost} were acknowledged, and are not there"
    deleted = Counter(each.told for each in asked if each.number is None)
    least, most = deleted[Told.DONE], deleted[Told.DONE] + deleted[Told.UNKNOWN]
    assert least <= made.count(None) <= most, f"{name}: {made.count(None)} deletions, {deleted}"
    _check_end(name, asked, made[-1] if made else None)


def _check_end(name: str, asked: list[Change], end: int | None) -> None:
    """Assert that the last state is that of the last acknowledged change, or of a change with an
    unknown outcome."""
    done = [each for each in asked if each.told is Told.DONE]
    possible = {each.number for each in asked if each.told is Told.UNKNOWN}
    possible.add(done[-1].number if done else None)
    assert end in possible, f"{name}: ends as {end}, expected one of {possible}"
