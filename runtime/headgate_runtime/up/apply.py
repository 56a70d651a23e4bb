"""Brings the cluster's connectors to what the pipeline file names, through calls to its workers."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    ErrorKind,
    Failure,
    PutConnectorConfig,
    Success,
)
from headgate.ports import Peers, TransportError
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConfigState

CALL_TIMEOUT_MS = 15_000
PAUSE_S = 0.3
AT_ONCE = 8
"""Changes that are asked for side by side. The group takes what comes during a round in the next
one: a thousand connectors need no thousand rounds."""
GIVE_UP_S = 180.0
"""A change that could not be made for so long is reported as refused."""
_AGAIN = frozenset(
    {ErrorKind.NOT_READY, ErrorKind.UNREACHABLE, ErrorKind.CONFLICT, ErrorKind.TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class Change:
    call: Call
    words: str
    """What it does: "making connector events"."""
    name: str


def planned_changes(
    state: ConfigState, named: Mapping[str, Config], *, prune: bool
) -> tuple[list[Change], list[str]]:
    """What must be asked for, in order, and what a user should know of what is left as it is.

    A connector whose config is there already needs no call; its target state is left alone.
    """
    changes: list[Change] = []
    notes: list[str] = []
    for name in state.connector_names():
        if name in named:
            continue
        if prune:
            changes.append(Change(DeleteConnector(name), f"deleting connector {name}", name))
        else:
            notes.append(
                f"connector {name} is not in the pipeline file and stays (--prune deletes)"
            )
    for name, config in named.items():
        entry = state.entry(name)
        if entry is None:
            changes.append(
                Change(PutConnectorConfig(name, config), f"making connector {name}", name)
            )
        elif dict(entry.config or {}) != dict(config):
            changes.append(
                Change(PutConnectorConfig(name, config), f"changing connector {name}", name)
            )
        else:
            target = state.target_state(name)
            if target != "STARTED":
                notes.append(f"connector {name} is as in the file and {target}, as somebody asked")
    return changes, notes


class Applier:
    """Makes changes on threads of its own; others look at what is left.

    Neighbours of one kind are made side by side. What is deleted is gone before anything is made:
    a connector under a new name may want what the old one held.
    """

    def __init__(
        self,
        peers: Peers,
        changes: Sequence[Change],
        urls: Callable[[], Sequence[str]],
        warn: Callable[[str], None],
        origin: str = "",
    ) -> None:
        """
        Args:
            urls: of the workers that can be asked now.
            warn: told, from the thread, what was done.
            origin: who asks, for the workers' logs.
        """
        self._peers = peers
        self._urls = urls
        self._warn = warn
        self._origin = origin
        self._left: dict[int, Change] = dict(enumerate(changes))
        """Changes by position; threads take out what they have made."""
        self._refused: list[str] = []
        self._last_answer: dict[str, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="apply", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def applying(self) -> tuple[str, ...]:
        """What is still to be done, with what the cluster last said of it."""
        shown = []
        for change in list(self._left.values()):
            answer = self._last_answer.get(change.name)
            shown.append(f"{change.words} ({answer})" if answer else change.words)
        return tuple(shown)

    @property
    def refused(self) -> tuple[str, ...]:
        return tuple(self._refused)

    def _run(self) -> None:
        for _, same in itertools.groupby(list(self._left.items()), lambda one: type(one[1].call)):
            todo = deque(same)
            names = (f"apply-{number}" for number in range(min(AT_ONCE, len(todo))))
            threads = [
                threading.Thread(target=self._make_some, args=(todo,), name=name, daemon=True)
                for name in names
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _make_some(self, todo: deque[tuple[int, Change]]) -> None:
        while not self._stopped.is_set():
            try:
                position, change = todo.popleft()
            except IndexError:
                return
            error = self._make(change)
            if error is not None:
                words = f"{change.words} was refused: {error}"
                self._refused.append(words)
                self._warn(words)
            elif not self._stopped.is_set():
                self._warn(f"{change.words}: done")
            # Off the list last: whoever looks must see it on one of both.
            if not self._stopped.is_set():
                del self._left[position]

    def _make(self, change: Change) -> str | None:
        """None when it is done, or when we are to stop; else why it cannot be."""
        deadline = time.monotonic() + GIVE_UP_S
        turn = 0
        while not self._stopped.is_set():
            urls = self._urls()
            if urls:
                result = self._ask(urls[turn % len(urls)], change.call)
                turn += 1
                if isinstance(result, Success):
                    return None
                gone = isinstance(change.call, DeleteConnector) and (
                    result.kind is ErrorKind.NOT_FOUND
                )
                if gone:
                    return None  # an earlier try, whose answer was lost, has done it
                if result.kind not in _AGAIN:
                    return result.message
                self._last_answer[change.name] = result.message
            if time.monotonic() >= deadline:
                last = self._last_answer.get(change.name, "no worker could be asked")
                return f"tried for {GIVE_UP_S:.0f} s; last: {last}"
            self._stopped.wait(PAUSE_S)
        return None

    def _ask(self, url: str, call: Call) -> Success | Failure:
        try:
            return self._peers.call(url, call, 0, CALL_TIMEOUT_MS, self._origin)
        except TransportError as error:
            return Failure(ErrorKind.TIMEOUT, str(error))
