"""The reason in a stack trace."""

_PYTHON = "Traceback (most recent call last):"


def first_words(trace: str | None) -> str:
    """The line of a stack trace that says what is wrong: with Python the first below the last
    traceback, with Java its first. What stands before the trace (that the task is restarted)
    follows in brackets."""
    lines = [line for line in (trace or "").splitlines() if line.strip()]
    places = [number for number, line in enumerate(lines) if line.startswith(_PYTHON)]
    if not places:
        return lines[0].strip() if lines else ""
    below = lines[places[-1] + 1 :]
    reason = next((line for line in below if not line[0].isspace()), lines[-1].strip())
    if not places[0]:
        return reason
    note = " ".join(line.strip() for line in lines[: places[0]]).rstrip(".")
    if reason in note:
        return note
    return f"{reason} ({note[0].lower()}{note[1:]})"
