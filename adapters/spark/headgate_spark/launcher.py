"""Launches task bodies on Spark executors: one Spark job of one partition per task."""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial

from headgate.ports import LaunchRefusal
from headgate_spark.executor import RESULT_SCHEMA, run_resident
from headgate_spark.sessions import Sessions, first_line, session_is_over
from headgate_spark.skin import on_executors, refusal

KILL_S = 60.0
KILL_AGAIN_S = 0.5
CLOSE_S = 5.0
"""How long `close` waits for a server that may hang, in seconds."""

_log = logging.getLogger("headgate.spark")


class SparkLauncher:
    """Implements `headgate.ports.Launcher` over one Spark Connect session.

    A job ends when its body does, or earlier: Spark forgets an interrupted job, while the Python
    worker may live on for some seconds. So `ended` says nothing about the body. The lifeline, or
    the pid, shows whether the body has ended.

    Args:
        remote: ``sc://host:port``.
        patience_s: how long a task waits for a server that is starting. Such a server is one of our
            own, whose session is shared.
        body: ``module:function``, importable on executors. It takes the argument, and returns a
            status.
        outage: file that says why the driver was ended, if it was. Empty: there is none.
    """

    def __init__(self, remote: str, body: str, patience_s: float = 0.0, outage: str = "") -> None:
        self._sessions = Sessions(remote, patience_s, shared=patience_s > 0, outage=outage)
        self._body = body
        self._mutex = threading.Lock()
        self._running: dict[str, str] = {}
        self._killed: set[str] = set()
        """Runs that are to end, whether their jobs have begun or not."""
        self._closed = False

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        """Start the body as a job of its own. Returns at once. See `Launcher.launch`."""
        with self._mutex:
            assert run not in self._running, f"run {run} was launched before"
            # A tag may not have all characters of a run id. It is unique, as others may share the
            # session.
            tag = f"headgate-{uuid.uuid4().hex}"
            closed = self._closed
            if not closed:
                self._running[run] = tag
        if closed:
            ended("the launcher is closed")
            return
        name = f"headgate-spark-{run}"
        work = partial(self._serve, run, tag, argument, ended)
        threading.Thread(target=work, name=name, daemon=True).start()

    def kill(self, run: str) -> None:
        """Interrupt the job of `run`, without waiting. The Python worker may outlive it briefly."""
        with self._mutex:
            known = run in self._running
            if known:
                self._killed.add(run)
        if known:
            # A server that hangs must not hang the caller.
            threading.Thread(target=self._kill, args=(run,), daemon=True).start()

    def close(self) -> None:
        """Interrupt running jobs and end the session. Nothing is launched after it."""
        with self._mutex:
            self._closed = True
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def _close(self) -> None:
        with self._mutex:
            tags = list(self._running.values())
        for tag in tags:
            self._interrupt(tag)
        self._sessions.close()

    def _kill(self, run: str) -> None:
        """Interrupt until the job is over: an interruption that comes before the job has no
        effect."""
        deadline = time.monotonic() + KILL_S
        while time.monotonic() < deadline:
            with self._mutex:
                tag = self._running.get(run)
            if tag is None:
                return
            self._interrupt(tag)
            time.sleep(KILL_AGAIN_S)

    def _serve(
        self, run: str, tag: str, argument: str, ended: Callable[[str | None], None]
    ) -> None:
        error: str | None
        try:
            error = self._run_job(run, tag, argument)
        except Exception as raised:
            # Whatever Spark's client raised, this job is over as far as we can know.
            refused = refusal(raised)
            error = LaunchRefusal(refused) if refused else f"Spark: {self._sessions.why(raised)}"
            _log.debug("the job of run %s ended", run, exc_info=True)
        with self._mutex:
            self._running.pop(run, None)
            self._killed.discard(run)
        ended(error)

    def _is_over(self, run: str) -> bool:
        with self._mutex:
            return self._closed or run in self._killed

    def _run_job(self, run: str, tag: str, argument: str) -> str | None:
        session = self._sessions.get(lambda: self._is_over(run))
        session.addTag(tag)  # tags belong to the thread, so to this job alone
        try:
            # One row, one partition: the body is the function over it.
            frame = session.range(0, 1, 1, 1).mapInArrow(
                on_executors(run_resident, self._body, argument), RESULT_SCHEMA
            )
            rows = frame.collect()
        except Exception as raised:
            if session_is_over(raised):
                self._sessions.drop(session)
            raise
        if len(rows) != 1:
            return f"Spark gave {len(rows)} results for one task, expected 1"
        found: str | None = rows[0]["error"]
        return found

    def _interrupt(self, tag: str) -> None:
        session = self._sessions.current()
        if session is None:
            return
        try:
            session.interruptTag(tag)
        except Exception as raised:  # a server that is gone has ended the job
            _log.debug("could not interrupt %s: %s", tag, first_line(raised))
