"""Answers to restarts of one connector or task, given once its new status is in the status topic.

The config topic tells nothing of such a restart. A caller that waits for RUNNING after an earlier
answer could take the status of the run before for that of the new run. A caller that reads the
status topic to its end after this answer sees the new status, or a later one.

Differs: Java answers while its statuses may be on their way.
"""

from typing import Final

from headgate.herder.context import Context, Resolved, Restarted, StatusesDue
from headgate.herder.messages import AwaitStatuses

STATUSES_MS: Final = 5_000
"""How long an answer waits for the status topic. It is given without it after that: the restart is
done."""


class RestartAnswers:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: dict[int, Restarted] = {}
        """Restarts by the token of their `AwaitStatuses`."""

    def on_restarted(self, restarted: Restarted) -> None:
        token = self._ctx.token()
        self._waiting[token] = restarted
        self._ctx.emit(AwaitStatuses(token))
        self._ctx.after(STATUSES_MS, StatusesDue(token))

    def on_written(self, token: int) -> None:
        """Answer a restart, because all statuses are written or the time to wait for them is
        over."""
        found = self._waiting.pop(token, None)
        if found is not None:
            self._ctx.note(Resolved(found.ticket, found.result))
