"""One worker: the threads and the inbox around its `HerderHost`.

Run it as ``python -m headgate_runtime.worker``. The first line of standard input is its
`WorkerConfig` as JSON. The end of standard input means that the process that started the worker is
gone. The worker then stops, and kills its own process if it cannot stop. SIGTERM stops it cleanly.

One thread owns the herder. It reads the logs and talks to the group itself. Work that may block on
other people's code (connectors, tasks, calls to other workers) runs on other threads, which post
commands.
"""

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from headgate.herder.herder import Herder
from headgate.herder.messages import (
    AlterConnectorOffsets,
    Called,
    Command,
    CoordinatorLost,
    DescribeWorker,
    Effect,
    GroupAnswered,
    Shutdown,
    TaskReported,
    Tick,
)
from headgate.herder.offset_changes import is_as_it_was
from headgate.herder.settings import HerderSettings
from headgate.host.host import HerderHost
from headgate.ports import RefusedError, TransportError
from headgate.task.messages import TaskReport
from headgate.topics.config_events import Config
from headgate_runtime.config.providers import pipeline_providers
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import NO_PROVIDERS, WorkerConfigTransformer
from headgate_runtime.transports.select import Transport, may_keep_waiting, open_transport
from headgate_runtime.transports.with_peers import WithPeers
from headgate_runtime.worker import collector, log_format
from headgate_runtime.worker.call_log import LoggedPeers
from headgate_runtime.worker.config import WorkerConfig, herder_settings, transport_settings
from headgate_runtime.worker.connector_calls import ConnectorCalls, read_all
from headgate_runtime.worker.journal_file import open_journal
from headgate_runtime.worker.loggers import Loggers
from headgate_runtime.worker.logs import InlineLogs, Logs, ThreadedLogs
from headgate_runtime.worker.loop_time import LoopTime
from headgate_runtime.worker.offsets_look import OffsetsLook
from headgate_runtime.worker.perform import Performer
from headgate_runtime.worker.round_log import RoundLog

log = logging.getLogger(__name__)

POLL_MS = 10
"""Pause between two looks at the logs while the loop is idle. A look and the wait for it cost some
100 us, most of it for the wake-up."""
QUICK_POLL_MS = 2
QUICK_MS = 100
"""How long the loop uses `QUICK_POLL_MS` after it has handled a command. One answer is often
followed by the next."""
TOLD_POLL_MS = 50
"""Pause between two looks if the transport announces changes. If the last look found something,
there may be more, and the pause is `QUICK_POLL_MS`."""
DRAIN_MS = 100
"""How long the loop handles commands before it looks at the logs and the group again."""
INBOX_SIZE = 100_000
READ_S = 30.0
"""How long a thread waits until the loop has read the config log up to a given position."""
ORPHAN_GRACE_S = 6.0


class Worker:
    """The owner of a herder and its loop. `run` returns when the herder is done."""

    _touched: Callable[[Iterable[str]], None] | None = None
    """Called with the names of the connectors that were touched."""

    def __init__(
        self,
        config: WorkerConfig,
        settings: WorkerSettings | None = None,
        transport: Transport | None = None,
        loggers: Loggers | None = None,
        transformer: WorkerConfigTransformer = NO_PROVIDERS,
        offsets_look: OffsetsLook | None = None,
    ) -> None:
        """
        Args:
            settings: the settings of `config`, if they are checked already.
            transport: the transport that `config` names, if it is open already.
            transformer: resolves the references in connector configs; closed with the worker.
            offsets_look: given if others can write to the offsets topic; closed with the worker.
        """
        self.config = config
        self.settings = settings or WorkerSettings.parse(config.settings)
        self.transport = transport or open_transport(
            transport_settings(config, self.settings), config.url
        )
        self._inbox: queue.Queue[Command | None] = queue.Queue(INBOX_SIZE)
        """Commands for the herder. None asks the loop to look at the logs and the group."""
        self._clock = self.transport.clock
        self._journal = open_journal(self.settings, config.name)
        self.herder = self._new_herder(herder_settings(config, self.settings))
        self._rounds = RoundLog(self.herder)
        self._loop_time = LoopTime()
        self._served_ms = self._clock.now_ms()
        self._subscribed = self.transport.subscribe(self.wake)
        self._logs = self._made_logs()
        self._performer = Performer(
            self.transport,
            self._logs,
            self.post,
            self._report,
            config,
            self.settings,
            self.alive,
            loggers or Loggers(),
            self._config_of,
            self.still_ours,
            transformer,
            offsets_look,
        )
        self._connector_calls = [self._performer.connector_calls]
        self.host = self._made_host()
        self._quick_until_ms = 0
        self._unfinished = True
        """The last look found something, or failed: look again, even if nothing changed."""
        self._woken = False
        """A thread has asked the loop to look."""
        self._coordinator_lost_since: int | None = None
        self._await_ends: tuple[tuple[int, int], Callable[[], None]] | None = None
        self._awaiting: list[tuple[int, threading.Event]] = []
        """Positions of the config log, each with an event to set when the loop has handled it."""
        self._stop_asked = False
        self._stopping = False
        self.gave_up = ""
        """Why the worker stops although it was not asked to. Empty: it has not given up."""

    def _made_logs(self) -> Logs:
        topics = {what: self.settings[f"{what}.storage.topic"] for what in ("config", "status")}
        if may_keep_waiting(self.config.transport):
            return ThreadedLogs(self.transport, topics, self.post, self.wake)
        return InlineLogs(self.transport, topics)

    def _made_host(self) -> HerderHost:
        return HerderHost(
            self.herder,
            self._performer,
            self._performer,
            self._clock.now_ms,
            given=self._journaled,
            decided=self._decided,
        )

    def post(self, command: Command) -> None:
        """Hand a command to the herder. May be called from any thread."""
        self._inbox.put(command)

    def _new_herder(self, settings: HerderSettings) -> Herder:
        now_ms, wall_ms = self._clock.now_ms(), time.time_ns() // 1_000_000
        if self._journal is not None:
            self._journal.begin(settings, now_ms, wall_ms)
        return Herder(settings, now_ms, wall_ms=wall_ms)

    def wake(self) -> None:
        """Have the loop look at the logs and the group at once. May be called from any thread. If
        the inbox is full, the loop looks after it has emptied it, so the caller never waits."""
        self._woken = True
        with suppress(queue.Full):
            self._inbox.put_nowait(None)

    def watch_connectors(self, touched: Callable[[Iterable[str]], None] | None) -> None:
        """Call `touched`, on the loop's thread, with the names of connectors that may have changed.
        None ends this. May be called from any thread."""
        self._touched = touched
        self.wake()

    def show_calls(self, calls: ConnectorCalls) -> None:
        """Add calls into connectors made outside the worker's loop, to be shown with the worker's
        own."""
        self._connector_calls.append(calls)

    def stop(self) -> None:
        """Ask for a clean stop. Only sets a flag, so a signal handler may call it."""
        self._stop_asked = True

    def kill_tasks(self) -> None:
        """Kill all tasks at once, without waiting for them to stop. May be called from any
        thread."""
        self._performer.kill_tasks()

    def alive(self) -> bool:
        """Return whether the herder is being served. A worker whose herder is not must not keep its
        tasks running: the group may have assigned them to other workers."""
        limit_ms: int = self.settings["session.timeout.ms"] // 4
        return self._clock.now_ms() - self._served_ms < limit_ms

    def still_ours(self, effect: AlterConnectorOffsets) -> bool:
        """Return whether this worker leads now, and no tasks of the connector were given out since
        `effect` was decided. May be called from any thread but the loop's.

        Raises:
            TransportError: the config topic cannot be read to its end.
        """
        end, read = self.transport.config_log.end(), threading.Event()
        self._awaiting.append((end, read))
        self.wake()
        until = time.monotonic() + READ_S
        while not read.wait(1.0):
            if self.herder.done or time.monotonic() > until:
                raise TransportError(
                    f"the config log ends at {end}, which this worker did not read"
                )
        return self.herder.leads and is_as_it_was(self.herder.state, effect)

    def run(
        self,
        ready: Callable[[], None] = lambda: None,
        after: tuple[int, int] = (0, 0),
        before_close: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve the herder until it is done.

        Args:
            ready: called once the config log and the status log are read up to the positions
                `after`. From then on, what is shown of them is not too old.
            after: positions in the config log and the status log.
            before_close: called when nothing runs any more, while the transport is still open.
            stopping: called when a stop begins, before any effect of it can be seen.
        """
        self._await_ends = (after, ready)
        self._served_ms = self._clock.now_ms()
        self._handle(Tick())
        while not self.herder.done:
            command = self._next_command()
            self._served_ms = self._clock.now_ms()
            if command is not None:
                self._handle(command)
            if self._stop_asked and not self._stopping:
                self._stopping = True
                stopping()
                self._handle(Shutdown())
            self._drain()
            self._read_world()
        self._performer.close()
        try:
            before_close()
        finally:
            self.transport.close()

    def _next_command(self) -> Command | None:
        """Return a posted command, or `Tick` once it is due. Return None when it is time to look at
        the logs and the group."""
        deadline = self.herder.next_deadline_ms
        left_ms = None if deadline is None else deadline - self._clock.now_ms()
        poll_ms = self._poll_ms()
        wait_ms = poll_ms if left_ms is None else max(min(poll_ms, left_ms), 0)
        try:
            return self._inbox.get(timeout=wait_ms / 1000)
        except queue.Empty:
            return Tick() if left_ms is not None and left_ms <= wait_ms else None

    def _poll_ms(self) -> int:
        if self._subscribed:
            in_reach = self._coordinator_lost_since is None and not self.gave_up
            more = self._unfinished and in_reach
            return QUICK_POLL_MS if more else TOLD_POLL_MS
        return QUICK_POLL_MS if self._clock.now_ms() < self._quick_until_ms else POLL_MS

    def _drain(self) -> None:
        """Handle commands that have piled up, for at most `DRAIN_MS`, before the next look. Each
        may cost a synced write, and the group's messages must be read in time."""
        until_ms = self._clock.now_ms() + DRAIN_MS
        while self._clock.now_ms() < until_ms:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            if command is not None:
                self._handle(command)

    def _handle(self, command: Command) -> None:
        self._quick_until_ms = self._clock.now_ms() + QUICK_MS
        self._logs.write_waiting()
        began_s = time.monotonic()
        self.host.handle(command)
        self._rounds.look()
        self._tell_touched()
        ended_s = time.monotonic()
        self._loop_time.took(ended_s - began_s, ended_s)

    def _journaled(self, now_ms: int, command: Command) -> None:
        if self._journal is not None:
            self._journal.write(now_ms, command)

    def _decided(self, command: Command, effects: Sequence[Effect]) -> None:
        if self._journal is not None:
            self._journal.decided(effects)
        if log.isEnabledFor(logging.DEBUG):
            names = [type(effect).__name__ for effect in effects]
            log.debug("%s -> %s", type(command).__name__, ", ".join(names) or "nothing")

    def _tell_touched(self) -> None:
        told = self._touched
        if (told is not None) is not self.herder.watched:
            self.herder.watch(told is not None)
        if told is not None and (names := self.herder.take_touched()):
            with suppress(RuntimeError):  # the watcher has ended, and its event loop with it
                told(names)

    # -- what others wrote --

    def _read_world(self) -> None:
        self._tell_touched()
        if self._woken:
            self._woken = False  # the look below sees what the wake-up was for
            self._unfinished = True
        try:
            if self.transport.changed() or self._unfinished:
                self._unfinished = True
                looks = (self._read_logs, self._read_calls, self._read_group)
                found = [look() for look in looks]
                self._unfinished = any(found)
        except RefusedError as error:
            self._give_up(error)
            return
        except TransportError as error:
            self._lost(error)
            return
        self._coordinator_lost_since = None

    def _read_logs(self) -> bool:
        found = False
        for command in self._logs.look():
            found = True
            self._handle(command)
        if self._await_ends is not None and self._logs.has_read(*self._await_ends[0]):
            _, ready = self._await_ends
            self._await_ends = None
            ready()
            self._performer.look_at_offsets()
        if self._awaiting:
            self._handle(Tick())  # the herder learns whether its session has ended
            for waiting in [each for each in self._awaiting if self._logs.has_read(each[0], 0)]:
                self._awaiting.remove(waiting)
                waiting[1].set()
        return found

    def _read_calls(self) -> bool:
        calls = self.transport.peers.incoming()
        for incoming in calls:
            call = incoming.call
            if isinstance(call, DescribeWorker):
                busy = self._loop_time.read(time.monotonic())
                call = replace(call, loop=busy, connector_calls=read_all(self._connector_calls))
            deadline = self._clock.now_ms() + incoming.deadline_ms_left
            self._handle(Called(incoming.call_id, call, incoming.hops, deadline))
        return bool(calls)

    def _read_group(self) -> bool:
        responses = self.transport.group.receive()
        for response in responses:
            self._handle(GroupAnswered(response))
        return bool(responses)

    def _lost(self, error: TransportError) -> None:
        """Handle a log that is out of reach. After a heartbeat interval the coordinator counts as
        lost as well, and work stops."""
        now = self._clock.now_ms()
        if self._coordinator_lost_since is None:
            self._coordinator_lost_since = now
            log.warning("the log is out of reach, trying again: %s", error)
        elif now - self._coordinator_lost_since >= self.settings["heartbeat.interval.ms"]:
            self._coordinator_lost_since = now
            self._handle(CoordinatorLost(str(error)))

    def _give_up(self, error: RefusedError) -> None:
        """Stop the worker after a refusal, as Connect's worker does. A supervisor sees the end of
        the process and starts it again."""
        if self._stopping or self.gave_up:
            return
        self.gave_up = str(error)
        log.error("this worker gives up: %s", error)
        self.stop()

    def _config_of(self, connector: str) -> Config:
        entry = self.herder.state.entry(connector)
        return {} if entry is None or entry.config is None else entry.config

    def _report(self, run: str, report: TaskReport) -> None:
        self.post(TaskReported(run, report))


def main() -> None:
    """Entry point of the worker process."""
    log_format.set_up()
    line = sys.stdin.readline()
    if not line.strip():
        sys.exit("headgate_runtime.worker: expected its configuration as one line of JSON on stdin")
    config = WorkerConfig.from_json(line)
    log_format.set_up(config.settings.get(log_format.KEY, log_format.TEXT))
    if config.working_directory:
        os.chdir(config.working_directory)
    settings = WorkerSettings.parse(config.settings)
    inner = open_transport(transport_settings(config, settings), config.url)
    transport = WithPeers(inner, LoggedPeers(inner.peers))
    transformer = WorkerConfigTransformer(pipeline_providers())
    worker = Worker(config, settings, transport, transformer=transformer)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to `headgate up`, which stops us
    threading.Thread(target=_watch_parent, args=(worker.stop,), daemon=True).start()
    collector.settle()
    log.info("worker %s starts as %s", config.name, config.url)
    worker.run()
    log.info("worker %s has stopped", config.name)


def _watch_parent(stop: Callable[[], None]) -> None:
    """Stop the worker when standard input ends, and kill the process if it does not stop in time.
    Never returns."""
    while sys.stdin.readline():
        pass
    log.warning("whoever started this worker is gone; stopping")
    stop()
    threading.Event().wait(ORPHAN_GRACE_S)
    os._exit(3)
