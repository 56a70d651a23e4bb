"""One worker: the loop that hands commands to the herder and performs its effects.

Run as ``python -m headgate_runtime.worker``; the first line of standard input is its `WorkerConfig`
as JSON. The end of standard input means that whoever started the worker is gone: it stops, and ends
its process if it cannot. SIGTERM stops it cleanly.

One thread owns the herder. It reads the logs and talks to the group itself; what may block on other
people's code (connectors, tasks, calls to other workers) runs on other threads that post commands.
"""

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable

from headgate import wire
from headgate.herder.herder import Herder
from headgate.herder.messages import (
    Call,
    Called,
    Command,
    ConfigRead,
    CoordinatorLost,
    DescribeWorker,
    ErrorKind,
    Failure,
    GroupAnswered,
    Shutdown,
    StatusRead,
    TaskReported,
    Tick,
)
from headgate.ports import TransportError
from headgate.records import java_text
from headgate.task.messages import TaskReport
from headgate_runtime import collector
from headgate_runtime.perform import Performer
from headgate_runtime.settings import WorkerSettings
from headgate_runtime.transport import Transport, open_transport
from headgate_runtime.worker_config import WorkerConfig, herder_settings, transport_settings

log = logging.getLogger(__name__)

POLL_MS = 10
"""How often an idle loop looks at the logs; a look and the wait for it cost some 100 us, most of
it the waking up."""
DRAIN_MS = 100
"""How long commands are handled without a look at the logs and the group."""
INBOX_SIZE = 100_000
ORPHAN_GRACE_S = 6.0


class Worker:
    """Owns a herder. `run` returns when the herder is done."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.settings = WorkerSettings.parse(config.settings)
        self.transport: Transport = open_transport(
            transport_settings(config, self.settings), config.url
        )
        self._inbox: queue.Queue[Command] = queue.Queue(INBOX_SIZE)
        self._clock = self.transport.clock
        self.herder = Herder(herder_settings(config, self.settings), self._clock.now_ms())
        self._served_ms = self._clock.now_ms()
        self._performer = Performer(
            self.transport, self.post, self._report, config, self.settings, self.alive
        )
        self._status_position = 0
        self._unfinished = True
        """The last look found something, or failed: there may be more, changed or not."""
        self._coordinator_lost_since: int | None = None
        self._stop_asked = False
        self._stopping = False

    def post(self, command: Command) -> None:
        """Hand a command to the herder; from any thread."""
        self._inbox.put(command)

    def stop(self) -> None:
        """Ask for a clean stop. Only sets a flag, so a signal handler may call it."""
        self._stop_asked = True

    def alive(self) -> bool:
        """Whether the herder is being served. A worker that is not must not keep its tasks going:
        the group may have given them to others."""
        limit_ms: int = self.settings["session.timeout.ms"] // 4
        return self._clock.now_ms() - self._served_ms < limit_ms

    def run(self) -> None:
        """Serve the herder until it is done."""
        self._handle(Tick())
        while not self.herder.done:
            command = self._next_command()
            self._served_ms = self._clock.now_ms()
            if command is not None:
                self._handle(command)
            if self._stop_asked and not self._stopping:
                self._stopping = True
                self._handle(Shutdown())
            self._drain()
            self._read_world()
        self._performer.close()
        self.transport.close()

    def _next_command(self) -> Command | None:
        """What was posted, or `Tick` once it is due; None when it is time to look at the world."""
        deadline = self.herder.next_deadline_ms
        left_ms = None if deadline is None else deadline - self._clock.now_ms()
        wait_ms = POLL_MS if left_ms is None else max(min(POLL_MS, left_ms), 0)
        try:
            return self._inbox.get(timeout=wait_ms / 1000)
        except queue.Empty:
            return Tick() if left_ms is not None and left_ms <= wait_ms else None

    def _drain(self) -> None:
        """What has piled up is handled before the world is looked at again, for a while: each
        command may cost a synced write, and the group must be heard in time."""
        until_ms = self._clock.now_ms() + DRAIN_MS
        while self._clock.now_ms() < until_ms:
            try:
                self._handle(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _handle(self, command: Command) -> None:
        pending = [command]
        while pending:
            effects = self.herder.handle(self._clock.now_ms(), pending.pop(0))
            pending.extend(self._performer.perform(effects))

    # -- what others wrote --

    def _read_world(self) -> None:
        try:
            if self.transport.changed() or self._unfinished:
                self._unfinished = True
                looks = (self._read_config, self._read_statuses, self._read_calls, self._read_group)
                found = [look() for look in looks]
                self._unfinished = any(found)
        except TransportError as error:
            self._lost(error)
            return
        self._coordinator_lost_since = None

    def _read_config(self) -> bool:
        events = self._performer.next_config_events()
        if events:
            self._handle(ConfigRead(events))
        return bool(events)

    def _read_statuses(self) -> bool:
        records, self._status_position = self.transport.status_log.read(self._status_position)
        if records:
            self._handle(StatusRead(tuple((java_text(r.key or b""), r.value) for r in records)))
        return bool(records)

    def _read_calls(self) -> bool:
        calls = self.transport.peers.incoming()
        for incoming in calls:
            try:
                call = wire.loads(Call, incoming.payload)
            except wire.WireError as error:
                self._performer.answer(
                    incoming.call_id, Failure(ErrorKind.BAD_REQUEST, f"malformed call: {error}")
                )
                continue
            if not isinstance(call, DescribeWorker):
                log.info("asked: %s", call)
            deadline = self._clock.now_ms() + incoming.deadline_ms_left
            self._handle(Called(incoming.call_id, call, incoming.hops, deadline))
        return bool(calls)

    def _read_group(self) -> bool:
        responses = self.transport.group.receive()
        for response in responses:
            self._handle(GroupAnswered(response))
        return bool(responses)

    def _lost(self, error: TransportError) -> None:
        """The log is out of reach; after a heartbeat interval so is the group, and work stops."""
        now = self._clock.now_ms()
        if self._coordinator_lost_since is None:
            self._coordinator_lost_since = now
            log.warning("the log is out of reach, trying again: %s", error)
        elif now - self._coordinator_lost_since >= self.settings["heartbeat.interval.ms"]:
            self._coordinator_lost_since = now
            self._handle(CoordinatorLost(str(error)))

    def _report(self, run: str, report: TaskReport) -> None:
        self.post(TaskReported(run, report))


def main() -> None:
    """Entry point of the worker process."""
    logging.basicConfig(
        level=os.environ.get("HEADGATE_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    line = sys.stdin.readline()
    if not line.strip():
        sys.exit("headgate_runtime.worker: expected its configuration as one line of JSON on stdin")
    config = WorkerConfig.from_json(line)
    if config.working_directory:
        os.chdir(config.working_directory)
    worker = Worker(config)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to `headgate up`, which stops us
    threading.Thread(target=_watch_parent, args=(worker.stop,), daemon=True).start()
    collector.settle()
    log.info("worker %s starts as %s", config.name, config.url)
    worker.run()
    log.info("worker %s has stopped", config.name)


def _watch_parent(stop: Callable[[], None]) -> None:
    """Returns never: when standard input ends, so does the worker."""
    while sys.stdin.readline():
        pass
    log.warning("whoever started this worker is gone; stopping")
    stop()
    threading.Event().wait(ORPHAN_GRACE_S)
    os._exit(3)


if __name__ == "__main__":
    main()
