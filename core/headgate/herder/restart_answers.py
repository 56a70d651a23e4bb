"""Answers to restarts of one connector or task: they come once its new status is in its topic.

Else a wait that begins with the answer could see the status of the run before, and take its RUNNING
or FAILED for the new run's: the config topic tells nothing of such a restart. Who reads the status
topic to its end after the answer sees that status, or a later one.

Differs: Java answers while its statuses may be on their way.
"""

from typing import Final

from headgate.herder.context import Context, Resolved, Restarted, StatusesDue
from headgate.herder.messages import AwaitStatuses

STATUSES_MS: Final = 5_000
"""How long an answer waits for the status topic. What was asked for is done: after that it is
answered without."""


class RestartAnswers:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: dict[int, Restarted] = {}
        """Restarts by the token of the question whether all statuses are written."""

    def on_restarted(self, restarted: Restarted) -> None:
        token = self._ctx.token()
        self._waiting[token] = restarted
        self._ctx.emit(AwaitStatuses(token))
        self._ctx.after(STATUSES_MS, StatusesDue(token))

    def on_written(self, token: int) -> None:
        """All are written; or nobody waits for that any longer."""
        found = self._waiting.pop(token, None)
        if found is not None:
            self._ctx.note(Resolved(found.ticket, found.result))
