"""Events of a study as text: ``crash w2 for 30s``, ``scale orders to 20 tasks``."""

import re
from collections.abc import Sequence
from typing import Final

from headgate.connector.nearest import nearest
from headgate.simulation.study.model import Event, Verb
from headgate.simulation.study.times import TimeError, time_ms

_WORKER: Final = re.compile(r"w[1-9][0-9]*")
_TASK: Final = re.compile(r"(.+)-[0-9]+")
_OPTION: Final = re.compile(r"\s(?P<word>for|every)\s+(?P<time>\d\S*(?:\s+(?:ms|s|m|h))?)\s*$")
_SCALE: Final = re.compile(r"(?P<name>\S+)\s+to\s+(?P<tasks>\d+)(?:\s+tasks?)?")
TASKS_MAX: Final = 2_000
DOWN_MS: Final = 5_000
"""How long each worker is down in a rolling restart, if the study does not say."""
EVERY_MS: Final = 30_000

_ON_WORKERS: Final = (Verb.CRASH, Verb.STOP, Verb.START, Verb.FREEZE)
_MAY_LAST: Final = (Verb.CRASH, Verb.STOP, Verb.FREEZE, Verb.ROLL)
FORMS: Final = (
    "crash WORKER [for TIME]",
    "stop WORKER [for TIME]",
    "start WORKER",
    "freeze WORKER for TIME",
    "roll [for TIME] [every TIME]",
    "create, delete, pause, resume, stop, restart CONNECTOR",
    "restart TASK",
    "scale CONNECTOR to NUMBER tasks",
)
"""All events, as a reader writes them."""
_OTHERS: Final = {
    **dict.fromkeys(("kill", "die", "fail", "terminate"), Verb.CRASH),
    **dict.fromkeys(("leave", "shutdown", "shut"), Verb.STOP),
    **dict.fromkeys(("add", "join", "boot", "run", "return"), Verb.START),
    **dict.fromkeys(("hang", "suspend", "slow", "stall", "gc"), Verb.FREEZE),
    **dict.fromkeys(("rolling", "bounce"), Verb.ROLL),
    **dict.fromkeys(("remove", "drop"), Verb.DELETE),
    **dict.fromkeys(("unpause",), Verb.RESUME),
    **dict.fromkeys(("resize", "set", "tasks"), Verb.SCALE),
}
"""Words that others have for events."""


class EventError(ValueError):
    """A text that is no event of the study."""


def event_of(text: str, connectors: Sequence[str]) -> Event:
    """The event that `text` describes, at time 0.

    Args:
        connectors: those of the study; a worker is any ``w`` with a number.

    Raises:
        EventError: an unknown event, a name that is neither a worker's nor a connector's, or an
            option that the event does not have. It says what was meant.
    """
    rest, options = _options(text)
    word, _, rest = rest.strip().partition(" ")
    rest = rest.strip()
    verb = _verb(word)
    _check_options(verb, options)
    if verb is Verb.ROLL:
        if rest:
            raise EventError(f"roll {rest}: roll is about all workers; stop {rest} is about one")
        down_ms = options.get("for", DOWN_MS)
        return Event(
            0, verb, for_ms=down_ms, every_ms=options.get("every", EVERY_MS), text=text.strip()
        )
    if verb is Verb.SCALE:
        return _scale(rest, connectors, text)
    if not rest:
        raise EventError(f"{verb} what? {_form(verb)}")
    if len(rest.split()) > 1:
        raise EventError(f'"{text.strip()}": {_form(verb)}')
    on_worker = verb in _ON_WORKERS and not (verb is Verb.STOP and rest in connectors)
    _check_name(verb, rest, connectors, on_worker=on_worker)
    if verb is Verb.FREEZE and "for" not in options:
        raise EventError(f"freeze {rest} for how long? {_form(verb)}")
    if options and not on_worker:
        raise EventError(f"{verb} {rest}: it has no time; resume {rest} is an event of its own")
    return Event(0, verb, rest, on_worker, for_ms=options.get("for"), text=text.strip())


def _options(text: str) -> tuple[str, dict[str, int]]:
    options: dict[str, int] = {}
    rest = f" {text.strip()}"
    while (found := _OPTION.search(rest)) is not None:
        try:
            options[found["word"]] = time_ms(found["time"])
        except TimeError as error:
            raise EventError(str(error)) from None
        rest = rest[: found.start()]
    return rest, options


def _verb(word: str) -> Verb:
    try:
        return Verb(word)
    except ValueError:
        near = _OTHERS.get(word) or nearest(word, [each.value for each in Verb])
        meant = f"; did you mean {near}?" if near else f"; events are: {'; '.join(FORMS)}"
        raise EventError(f'unknown event "{word}"{meant}') from None


def _check_options(verb: Verb, options: dict[str, int]) -> None:
    for word in options:
        if verb not in _MAY_LAST or (word == "every" and verb is not Verb.ROLL):
            raise EventError(f'"{word}" means nothing here: {_form(verb)}')
    if verb is Verb.ROLL and options.get("every", EVERY_MS) == 0:
        raise EventError(f"every 0 s, expected more: {_form(verb)}")
    if verb is Verb.FREEZE and options.get("for") == 0:
        raise EventError(f"for 0 s, expected more: {_form(verb)}")


def _form(verb: Verb) -> str:
    return "expected " + " or ".join(form for form in FORMS if verb.value in form)


def _scale(rest: str, connectors: Sequence[str], text: str) -> Event:
    found = _SCALE.fullmatch(rest)
    if found is None:
        raise EventError(f'"{text.strip()}": {_form(Verb.SCALE)}')
    _check_name(Verb.SCALE, found["name"], connectors, on_worker=False)
    tasks = int(found["tasks"])
    if not 1 <= tasks <= TASKS_MAX:
        raise EventError(f"{tasks} tasks, expected 1 to {TASKS_MAX}")
    return Event(0, Verb.SCALE, found["name"], tasks=tasks, text=text.strip())


def _check_name(verb: Verb, name: str, connectors: Sequence[str], *, on_worker: bool) -> None:
    if on_worker:
        if _WORKER.fullmatch(name):
            return
        if name in connectors:
            raise EventError(f"{verb} {name}: {name} is a connector; {_form(verb)}")
        known = [f"w{number}" for number in range(1, 10)]
        if verb is Verb.STOP:
            known += connectors
        what = "worker or connector" if verb is Verb.STOP else "worker"
        raise EventError(f"unknown {what} {name}{_near(name, known) or _named(connectors)}")
    if name in connectors:
        return
    task = _TASK.fullmatch(name)
    if verb is Verb.RESTART and task is not None and task[1] in connectors:
        return
    if _WORKER.fullmatch(name):
        raise EventError(f"{verb} {name}: {name} is a worker; {_form(verb)}")
    raise EventError(f"unknown connector {name}{_near(name, connectors) or _named(connectors)}")


def _near(name: str, known: Sequence[str]) -> str:
    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""


def _named(connectors: Sequence[str]) -> str:
    return f"; workers are w1, w2 and so on, connectors: {', '.join(connectors) or 'none'}"
