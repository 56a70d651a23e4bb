"""Whether the events of a study can happen when they should: nobody crashes what is down."""

from collections.abc import Iterator, Sequence

from headgate.connector.nearest import nearest
from headgate.simulation.study.model import Event, Study, Verb
from headgate.simulation.study.times import time_text


def problems_of(study: Study, events: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, str]]:
    """What cannot happen: the number of the event, as given, and why.

    Walks the events by their time, with workers and connectors as the events before leave them. A
    worker that leaves counts as gone at once, though its tasks take time to stop.
    """
    walk = _Walk(study)
    for number, event in sorted(events, key=lambda one: one[1].at_ms):
        text = walk.problem(event)
        if text:
            yield number, text


class _Walk:
    def __init__(self, study: Study) -> None:
        self._up: dict[str, int] = dict.fromkeys(study.workers, 0)
        """Workers that are up, or will be, and from when on."""
        self._down: dict[str, str] = {}
        """Workers that are down, and since what."""
        self._frozen: dict[str, int] = {}
        """Workers that freeze, and until when."""
        self._connectors = set(study.at_start())
        self._tasks = dict(study.connectors)
        self._all = tuple(study.connectors)

    def problem(self, event: Event) -> str:
        if event.verb is Verb.ROLL:
            return self._roll(event)
        if event.on_worker:
            return self._start(event) if event.verb is Verb.START else self._worker(event)
        return self._connector(event)

    def _roll(self, event: Event) -> str:
        if not self._up:
            return "no worker is up then"
        return ""

    def _start(self, event: Event) -> str:
        if event.name in self._up:
            back_ms = self._up[event.name]
            when = f"comes back by itself at {time_text(back_ms)}" if back_ms else "is up"
            return f"{event.name} {when if back_ms > event.at_ms else 'is up'} already"
        self._down.pop(event.name, None)
        self._up[event.name] = event.at_ms
        return ""

    def _worker(self, event: Event) -> str:
        name = event.name
        if name in self._down:
            return f"{name} is down then: {self._down[name]}"
        if name not in self._up:
            near = nearest(name, self._up)
            meant = f"; did you mean {near}?" if near else f'; "start {name}" before starts it'
            return f"no worker {name}: there are {', '.join(self._up) or 'none'} then{meant}"
        if self._up[name] > event.at_ms:
            return f"{name} is down then: it comes back at {time_text(self._up[name])}"
        if event.verb is Verb.FREEZE:
            until_ms = self._frozen.get(name, 0)
            if until_ms > event.at_ms:
                return f"{name} is frozen then, until {time_text(until_ms)}"
            self._frozen[name] = event.at_ms + (event.for_ms or 0)
            return ""
        self._frozen.pop(name, None)
        if event.for_ms is not None:
            self._up[name] = event.at_ms + event.for_ms
        else:
            del self._up[name]
            self._down[name] = f"{event.text} at {time_text(event.at_ms)}"
        return ""

    def _connector(self, event: Event) -> str:
        name = event.name
        if event.verb is Verb.CREATE:
            if name in self._connectors:
                return f"{name} is there already"
            self._connectors.add(name)
            return ""
        number = None
        if event.verb is Verb.RESTART and name not in self._all:
            name, _, number = name.rpartition("-")
        if name not in self._connectors:
            return f'no connector {name} then; "create {name}" before makes it'
        if number is not None and int(number) >= self._tasks[name]:
            return f"no task {event.name} then: {name} has {self._tasks[name]}, counted from 0"
        if event.verb is Verb.SCALE:
            self._tasks[name] = event.tasks
        if event.verb is Verb.DELETE:
            self._connectors.remove(name)
        return ""
