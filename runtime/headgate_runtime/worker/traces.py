"""The reason in a stack trace, as one line."""

from headgate.connector.restart_policy import note_and_error

_PYTHON = "Traceback (most recent call last):"


def first_words(trace: str | None) -> str:
    """Return the line of a stack trace that says what is wrong. In Python it is the first below the
    last traceback, in Java the first. A note before the trace (that the task is restarted) follows
    in brackets."""
    note, error = note_and_error(trace or "")
    lines = [line for line in error.splitlines() if line.strip()]
    places = [number for number, line in enumerate(lines) if line.startswith(_PYTHON)]
    if not places:
        return _with_note(lines[0].strip() if lines else "", note)
    below = lines[places[-1] + 1 :]
    reason = next((line for line in below if not line[0].isspace()), lines[-1].strip())
    return _with_note(reason, " ".join([note, *(line.strip() for line in lines[: places[0]])]))


def _with_note(reason: str, note: str) -> str:
    note = note.strip().rstrip(".")
    if not note or not reason or reason in note:
        return note or reason
    return f"{reason} ({note[0].lower()}{note[1:]})"
