"""Changes the cluster's connectors to those of the pipeline file, through calls to its workers."""

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
"""Changes that are asked for side by side. The group takes changes that come during a round in the
next one, so a thousand connectors need no thousand rounds."""
GIVE_UP_S = 180.0
"""Time after which a change that could not be made is reported as refused, in seconds."""
_AGAIN = frozenset(
    {ErrorKind.NOT_READY, ErrorKind.UNREACHABLE, ErrorKind.CONFLICT, ErrorKind.TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class Change:
    call: Call
    words: str
    """What the change does: "making connector events"."""
    name: str


def planned_changes(
    state: ConfigState, named: Mapping[str, Config], *, prune: bool
) -> tuple[list[Change], list[str]]:
    """Return the changes to ask for, in order, and notes for the user on what is left as it is.

    A connector that already has its config needs no call. Its target state is left alone.
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
    """Makes changes on threads of its own. Other threads read what is left.

    Consecutive changes of one kind are made side by side. Deletions are complete before anything is
    made: a connector under a new name may need what the old one held.
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
            urls: returns the URLs of the workers that can be asked now.
            warn: called, from the thread, with what was done.
            origin: the caller's name for the workers' logs.
        """
        self._peers = peers
        self._urls = urls
        self._warn = warn
        self._origin = origin
        self._left: dict[int, Change] = dict(enumerate(changes))
        """Changes by position. Threads take out the changes that they have made."""
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
        """Changes that are still to be made, each with the cluster's last answer."""
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
            # Removed last, so that a reader sees the change in one of the lists at any time.
            if not self._stopped.is_set():
                del self._left[position]

    def _make(self, change: Change) -> str | None:
        """Make a change. Return None if it is done or this is to stop, otherwise why it is
        impossible."""
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
                    return None  # an earlier try has done it, whose answer was lost
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
