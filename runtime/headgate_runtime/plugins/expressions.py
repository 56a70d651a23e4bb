"""Regular expressions of users, tried on a text in bounded time.

Python's `re` holds the interpreter until it has an answer, and some expressions have none for
years. ``(a+)+b`` on thirty letters would stop the whole worker. So an expression that may take long
is tried in a process of its own, which yields to all others.
"""

import json
import re
import subprocess
import sys
import threading
import time
from typing import Final

from headgate.java.pattern import compile_java

SECONDS: Final = 20.0
"""Time limit, in seconds: a busy machine may need so long for one second of processor time."""
AT_ONCE: Final = 2
"""Processes at once. Other calls wait for their turn: with a hundred processes, none would have an
answer in `SECONDS`."""
_TEXT_MAX: Final = 249
"""Longest name of a topic."""
_REPEATED_GROUP: Final = re.compile(r"\)[*+?{]")
_CHOICES_MAX: Final = 3
"""Most repetitions and groups of a quick expression. So many in a row are tried in at most some
million steps."""
_BRANCHES_MAX: Final = 50
_PROGRAM: Final = """
import json, os, re, resource, sys
os.nice(19)
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
pattern, text = json.load(sys.stdin)
sys.exit(10 if re.compile(pattern, re.ASCII).match(text) else 11)
"""
_YES, _NO = 10, 11
_turns = threading.BoundedSemaphore(AT_ONCE)


def matches_in_time(pattern: str, text: str, seconds: float = SECONDS) -> bool | None:
    """Return whether the Java expression matches the whole of `text`. None: it takes longer, or
    other expressions took up all the time.

    Raises:
        JavaPatternError: as in `compile_java`.
    """
    compiled = compile_java(pattern)
    if is_quick(pattern) and len(text) <= _TEXT_MAX:
        return compiled.match(text) is not None
    until = time.monotonic() + seconds
    if not _turns.acquire(timeout=seconds):
        return None
    try:
        return _tried(compiled.pattern, text, until - time.monotonic())
    finally:
        _turns.release()


def _tried(pattern: str, text: str, seconds: float) -> bool | None:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([pattern, text]).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return {_YES: True, _NO: False}.get(done.returncode)


def is_quick(pattern: str) -> bool:
    """Return whether an expression has too few choices to take long. Some quick ones are not
    recognised."""
    choices = sum(map(pattern.count, "*+{?("))
    return (
        choices <= _CHOICES_MAX
        and pattern.count("|") <= _BRANCHES_MAX
        and _REPEATED_GROUP.search(pattern) is None
    )
