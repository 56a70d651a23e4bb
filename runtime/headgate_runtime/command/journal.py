"""``headgate replay --worker FILE``: a worker's decisions, step by step, from its journal."""

from collections.abc import Iterable, Iterator

from headgate.herder import messages as m
from headgate.herder.journal import Step, replay_journal

_QUIET = (m.SendGroup, m.ReadConfigToEnd)
"""Effects of which every round has many. A step that has nothing else is not printed."""


def decisions(lines: Iterable[str]) -> Iterator[str]:
    """Yield a line for each command that decided something: seconds since the first one, and the
    command. The effects follow below it.

    Raises:
        JournalError: as in `replay_journal`.
    """
    began: int | None = None
    for step in replay_journal(lines):
        began = step.now_ms if began is None else began
        effects = [effect for effect in step.effects if not isinstance(effect, _QUIET)]
        if effects:
            yield f"{(step.now_ms - began) / 1000:10.3f}  {_command(step)}"
            yield from (f"{'':12}-> {_short(effect)}" for effect in effects)


def _command(step: Step) -> str:
    match step.command:
        case m.Called(_, call):
            return f"asked: {_short(call)}"
        case m.ConfigRead(events):
            return "read: " + ", ".join(_short(event) for event in events)
        case m.GroupAnswered(response):
            return f"the group: {_short(response)}"
        case m.TaskReported(run, report):
            return f"task run {run}: {_short(report)}"
        case command:
            return _short(command)


def _short(message: object) -> str:
    """Return the kind of a message, and its subject."""
    subjects = ("name", "connector", "task", "key", "call_id", "generation", "run", "reason")
    found = [
        f"{subject}={value}"
        for subject in subjects
        if (value := getattr(message, subject, None)) not in (None, "")
    ]
    return " ".join([type(message).__name__, *found])[:200]
