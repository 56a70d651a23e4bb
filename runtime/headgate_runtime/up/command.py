"""``headgate up``: the parts put together, and the regular look at the cluster (the beat)."""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from headgate.connector.error_handling import LETTERS_TOPIC
from headgate.connector.restart_policy import MAX as RESTART_MAX
from headgate.herder.messages import WorkerView
from headgate.ports import TopicPartition, TransportError
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConfigState
from headgate_runtime.api.serving import not_served, serve_up
from headgate_runtime.command.errors import EXIT_FAILED, EXIT_INTERRUPTED, UpError
from headgate_runtime.config.private_files import make_private_folder, write_private
from headgate_runtime.config.settings import TASKS_PER_PROCESS, WorkerSettings
from headgate_runtime.plugins.table import described
from headgate_runtime.spark.service import SparkService, tasks_max_of
from headgate_runtime.up import folder
from headgate_runtime.up.apply import Applier, planned_changes
from headgate_runtime.up.changes import changes
from headgate_runtime.up.check import spark_faults
from headgate_runtime.up.disk import Disk, unusable
from headgate_runtime.up.display import (
    Display,
    Heading,
    LiveDisplay,
    PlainDisplay,
    connector_rates,
    counted,
)
from headgate_runtime.up.forecast import at_least_once, notes_of
from headgate_runtime.up.idle import (
    Outcome,
    Verdict,
    failure_lines,
    failures_at_stop,
    idle_verdict,
    quarantine_lines,
)
from headgate_runtime.up.metrics_server import MetricsServer
from headgate_runtime.up.observe import Observer, Seen
from headgate_runtime.up.pipeline import Pipeline
from headgate_runtime.up.processes import WorkerProcess, WorkerProcesses
from headgate_runtime.up.rates import Rates
from headgate_runtime.up.references import resolved
from headgate_runtime.up.registry import Registered, Registry
from headgate_runtime.up.retention import RetentionPasses
from headgate_runtime.up.snapshot import Phase, Snapshot, WorkerSnapshot
from headgate_runtime.up.timeline import Timeline, draw
from headgate_runtime.up.totals import Totals, lines, totals

RESTARTS = "10"
"""Default of ``headgate.restart.max`` for a `headgate up` that goes on until it is stopped."""
BEAT_S = 0.5
REST_PER_CPU_S = 4.0
"""Seconds of rest for each second of CPU that a look takes. A look at thousands of tasks takes a
second of CPU, and calls by gRPC wait for it."""
TOLD_S = 0.000_05
"""CPU that a worker needs to report one task, in seconds, measured with 2,000 tasks. It reports
those that have changed."""
GARBAGE = (50_000, 20, 50)
"""Thresholds of Python's collector. A look makes thousands of objects, most of which are freed with
their last reference. With Python's own thresholds every look had a full collection."""
SILENT_AFTER_S = 2.5
STOP_EXTRA_S = 5.0
"""Extra time for a stop, beyond `task.shutdown.graceful.timeout.ms`: leaving the group, closing the
log."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    until_idle: bool = False
    join: bool = False
    prune: bool = False
    plain: bool = False
    timeline: Path | None = None
    metrics: str | None = None
    """``HOST:PORT`` that Prometheus scrapes. None: metrics are not served."""


def run(pipeline: Pipeline, options: UpOptions) -> int:
    """Run the pipeline until it is idle, fails, or is stopped. Return the exit code.

    Raises:
        UpError: it could not be started at all.
    """
    if options.join and options.prune:
        raise UpError("--prune is for the headgate up that holds the cluster, not for --join")
    for fault in () if options.join else spark_faults(pipeline):
        raise UpError(f"nothing was started: {fault}")
    gc.set_threshold(*GARBAGE)
    timeline_path = options.timeline.absolute() if options.timeline is not None else None
    held = folder.join(pipeline.data) if options.join else folder.hold(pipeline.data)
    display = make_display(pipeline, options)
    with held:
        stop = StopSignals()
        try:
            up = Up(pipeline, options, display, held, stop)
            with stop:
                code = up.run()
        except OSError as error:  # before anything has started
            raise UpError(unusable(pipeline.data, error), EXIT_FAILED) from None
        finally:
            display.close()
        if timeline_path is not None:
            draw(up.timeline, timeline_path, f"{pipeline.file.name}: who owned what when")
            print(f"timeline: {timeline_path}", flush=True)
        for line in up.last_words:
            print(line, file=sys.stderr if code else sys.stdout, flush=True)
    return code


def make_display(pipeline: Pipeline, options: UpOptions) -> Display:
    console = Console()
    if options.plain or not console.is_terminal:
        return PlainDisplay(sys.stdout)
    heading = Heading(pipeline.file.name, str(pipeline.data), pipeline.runner)
    return LiveDisplay(console, heading)


def rest_after(cpu_s: float, tasks: int = 0) -> float:
    """Return the least time until the next look at everything, in seconds. The last look took
    `cpu_s` of CPU here, and workers reported `tasks` tasks on the herder's thread for it."""
    return max(BEAT_S / 5, REST_PER_CPU_S * (cpu_s + tasks * TOLD_S))


def skipped_line(connector: str, count: int, letters: str = "") -> str:
    """Return a line about skipped records. It says "at least", since a killed worker may have
    skipped more than it reported. `letters` is the topic of its dead letter queue."""
    kept = f"they are in the dead letter queue {letters}; " if letters else ""
    return (
        f"  {connector}: at least {counted(count, 'record')} skipped, as errors.tolerance is all; "
        f"{kept}which and why: logs/ in the data folder"
    )


class StopSignals:
    """Signal handling of a run. The first SIGINT, SIGTERM or SIGHUP asks for a clean stop, the
    second interrupts it."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        for number in self.NUMBERS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked.is_set():
            raise KeyboardInterrupt
        self.asked.set()


class Up:
    """One run of `headgate up`. All happens on the thread that calls `run`, except calls to workers
    and messages of other threads."""

    def __init__(
        self,
        pipeline: Pipeline,
        options: UpOptions,
        display: Display,
        held: folder.Held,
        stop: StopSignals,
    ) -> None:
        self._pipeline = pipeline
        self._options = options
        self._display = display
        self._held = held
        self._stop = stop
        self._logs = pipeline.data / "logs"
        make_private_folder(self._logs)
        self._transport_settings = folder.transport_settings(pipeline.data, pipeline.log)
        self._serving = contextlib.ExitStack()
        self._tell_stopping = not_served
        """Tells the gRPC API of this cluster that a stop begins."""
        self._thread = threading.current_thread()
        self._said_lock = threading.Lock()
        self._lines_to_show: list[str] = []
        self._retention = RetentionPasses(pipeline, self._say, join=options.join)
        self._retention.give_back()
        self._transport = folder.open_log(pipeline.data, self._say)
        self._observer = Observer(self._transport, pipeline.connectors)
        self._registry = Registry(pipeline.data)
        self._disk = Disk(pipeline.data)
        self._rates = Rates()
        self._skipped = Rates()
        self._at_start: Seen | None = None
        self._ends_at_start: Mapping[TopicPartition, int] = {}
        self._totals = Totals()
        """Records moved, known at the end."""
        self._verdict: Verdict | None = None
        self._started = time.monotonic()
        self._generation_before: int | None = None
        """Generation of the group before the first counted round."""
        self._rebalances = 0
        self._spark = SparkService(
            pipeline,
            join=options.join,
            warn=self._say,
            marked=self._mark,
            tasks_per_process=int(pipeline.settings.get(TASKS_PER_PROCESS, "1")),
        )
        self._processes: WorkerProcesses | None = None
        self._applier: Applier | None = None
        self._last_views: dict[str, tuple[float, WorkerView]] = {}
        """Time and content of each worker's last answer."""
        self._tasks_told = 0
        """Number of connectors and tasks that workers reported at the last look."""
        self._snapshot: Snapshot | None = None
        self._metrics: MetricsServer | None = None
        self.timeline = Timeline()
        self.last_words: list[str] = []
        """Lines for the user, printed after the display is closed."""

    def run(self) -> int:
        code = EXIT_FAILED
        try:
            self._start()
            code = self._beats()
            clean = self._end()
            self._count()
            return code if clean else max(code, EXIT_FAILED)
        except KeyboardInterrupt:
            self.last_words.append("interrupted: everything was killed")
            code = EXIT_INTERRUPTED
            return code
        except (OSError, TransportError) as error:
            self.last_words.append(unusable(self._pipeline.data, error))
            code = EXIT_FAILED
            return code
        finally:
            self._kill()
            self._write_summary(code)

    # -- start and end --

    def _start(self) -> None:
        if self._options.metrics is not None:
            self._metrics = MetricsServer(self._options.metrics)
            self._say(f"metrics at {self._metrics.address}")
        # One process looks at the classes for all workers, while this one looks at the pipeline.
        look = threading.Thread(target=described, name="connector-classes", daemon=True)
        look.start()
        names = self._registry.free_names(self._pipeline.workers)
        seen = self._at_start = self._observer.read()
        configs_now = self._all_configs(seen.state)
        for line in notes_of(self._pipeline, configs_now, self._topics()):
            self._say(line)
        for line in at_least_once(self._pipeline, configs_now):
            self._say(line)
        self._ends_at_start = self._observer.topic_ends(configs_now.values())
        self._spark.start(tasks_max_of(configs_now))
        look.join()
        connectors = {name: asdict(each) for name, each in described().items()}
        configs = [
            {
                "name": name,
                "url": f"embedded:{name}",
                "transport": self._transport_settings,
                "settings": self._worker_settings(),
                "spark": self._spark.worker_settings(),
                "working_directory": str(self._pipeline.folder),
                "until_idle": self._options.until_idle,
                "connectors": connectors,
            }
            for name in names
        ]
        self._processes = WorkerProcesses(configs, self._logs, self._say, self._mark)
        if self._stop.asked.is_set():
            return
        self._say(f"starting {len(names)} worker{'s' if len(names) > 1 else ''}")
        self._processes.start()
        self._retention.start()
        if not self._options.join:
            settings = WorkerSettings.parse(self._pipeline.settings)
            data = self._pipeline.data
            self._tell_stopping = serve_up(
                data, settings, self._urls_up, self._views, self._say, self._serving
            )
        plan, notes = planned_changes(
            seen.state, self._pipeline.connectors, prune=self._options.prune
        )
        for line in notes if not self._options.join else ():
            self._say(line)
        self._applier = Applier(
            self._transport.peers, plan, self._urls_up, self._say, self._origin()
        )
        self._applier.start()

    def _origin(self) -> str:
        """Return the caller's name of this command's calls, for the workers' logs."""
        return f"by headgate up (process {os.getpid()}), from {self._pipeline.file.name}"

    def _topics(self) -> Sequence[str]:
        return self._transport.record_log.topic_names()

    def _worker_settings(self) -> dict[str, str]:
        """Return the file's settings for workers. A run that goes on restarts failed tasks by
        default. A run that ends once all is idle does not, and ends with the failures."""
        by_mode = {} if self._options.until_idle else {RESTART_MAX: RESTARTS}
        return {**by_mode, **self._pipeline.settings}

    def _all_configs(self, state: ConfigState) -> dict[str, Config]:
        """Return the configs that will run, with references resolved: those of the file, and those
        of connectors that stay."""
        stay = {name: entry.config or {} for name, entry in state.entries.items() if entry.config}
        return {k: resolved(config) for k, config in {**stay, **self._pipeline.connectors}.items()}

    def _end(self) -> bool:
        """Stop cleanly. Return False if something had to be killed."""
        assert self._processes is not None
        grace = WorkerSettings.parse(self._pipeline.settings)
        grace_s = grace["task.shutdown.graceful.timeout.ms"] / 1000 + STOP_EXTRA_S
        if self._applier is not None:
            self._applier.stop()
        hint = " (Ctrl-C again kills them)" if self._stop.asked.is_set() else ""
        self._say(f"stopping the workers{hint}")
        self._tell_stopping()
        clean = self._processes.stop(grace_s)
        self._retention.finish()
        self._flush()
        return clean

    def _count(self) -> None:
        """Count from the log what was moved, when our processes no longer write to it."""
        if self._at_start is None:
            return
        seen = self._observer.read()
        configs = self._all_configs(seen.state).values()
        ends, starts = self._observer.topic_ends(configs), self._observer.topic_starts(configs)
        before = self._at_start.connectors
        self._totals = totals(self._ends_at_start, starts, ends, before, seen.connectors)
        self.last_words.extend(lines(self._totals))
        for name, count in self._skipped_records().items():
            config = self._pipeline.connectors.get(name, {})
            self.last_words.append(skipped_line(name, count, config.get(LETTERS_TOPIC, "")))

    def _skipped_records(self) -> dict[str, int]:
        connectors = self._snapshot.connectors if self._snapshot is not None else ()
        counts = {
            one.name: sum(self._skipped.total(task) for task in one.tasks) for one in connectors
        }
        return {name: count for name, count in counts.items() if count}

    def _kill(self) -> None:
        self._serving.close()
        if self._applier is not None:
            self._applier.stop()
        if self._processes is not None:
            self._processes.kill()
        self._retention.close()
        if self._metrics is not None:
            self._metrics.close()
        self._registry.remove()
        self._spark.close()
        self._observer.close()
        self._transport.close()

    # -- the beat --

    def _beats(self) -> int:
        next_beat = time.monotonic()
        while not self._stop.asked.is_set():
            cpu_s = time.process_time()
            verdict = self._beat()
            if verdict is not None:
                return self._conclude(verdict)
            rest_s = rest_after(time.process_time() - cpu_s, self._tasks_told)
            next_beat = max(next_beat + BEAT_S, time.monotonic() + rest_s)
            self._stop.asked.wait(max(0.0, next_beat - time.monotonic()))
        failed = self._failures_at_stop()
        state = " with failures" if failed else ""
        self.last_words.append(f"stopped{state}; the next headgate up goes on from here")
        self.last_words.extend(f"  {line}" for line in failed)
        if failed:
            self._verdict = Verdict(Outcome.FAILED, failed)
        if self._options.until_idle:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if failed else 0

    def _failures_at_stop(self) -> tuple[str, ...]:
        if self._snapshot is None:
            return ()
        return self._disk.full + failures_at_stop(self._snapshot, self._observer.read().connectors)

    def _quarantined(self) -> list[str]:
        """Return what source tasks have quarantined, a line each."""
        owners = self._snapshot.known().task_owners() if self._snapshot is not None else {}
        return [
            line
            for task, views in sorted(owners.items())
            for _, view in views
            for line in quarantine_lines(str(task), view.quarantined)
        ]

    def _beat(self) -> Verdict | None:
        """Look at everything once. Return a verdict when it is time to end."""
        assert self._processes is not None
        self._spark.tick()
        self._processes.tick()
        previous, snapshot = self._snapshot, self._look(self._processes)
        views = {
            task: view for task, owners in snapshot.task_owners().items() for _, view in owners
        }
        self._rates.update(snapshot.at, {task: view.records for task, view in views.items()})
        self._skipped.update(snapshot.at, {task: view.skipped for task, view in views.items()})
        if self._options.timeline is not None:  # it looks at every task, and keeps what it saw
            task_rates = {task: self._rates.per_second(task, snapshot.at) for task in views}
            self.timeline.observe(snapshot, connector_rates(snapshot, self._rates), task_rates)
        none_left = all(worker.phase is Phase.GIVEN_UP for worker in snapshot.workers)
        verdict = None
        if self._options.until_idle or none_left:  # otherwise unused, and it looks at everything
            verdict = idle_verdict(snapshot, previous)
        for line in changes(previous, snapshot):
            self._say(line)
        self._flush()
        waiting = verdict is not None and verdict.outcome is Outcome.WAITING
        awaited = verdict.reasons if verdict is not None and waiting else ()
        self._display.show(snapshot, self._rates, awaited)
        self._snapshot = snapshot
        if self._metrics is not None:
            self._metrics.show(snapshot)
        full = self._disk.look()
        if self._disk.news:
            self._say(self._disk.news)
        if full:
            return Verdict(Outcome.FAILED, (full, *failure_lines(snapshot)))
        if none_left:
            return verdict
        if self._held.ended():
            return Verdict(Outcome.FAILED, ("the cluster that this one joined has ended",))
        return None if waiting else verdict

    def _conclude(self, verdict: Verdict) -> int:
        assert self._snapshot is not None
        self._verdict = verdict
        seconds = time.monotonic() - self._started
        rebalances = counted(self._snapshot.rebalances, "rebalance")
        self.last_words.append(f"{verdict.outcome} after {seconds:.1f} s, {rebalances}")
        self.last_words.extend(f"  {reason}" for reason in verdict.reasons)
        return EXIT_FAILED if verdict.outcome is Outcome.FAILED else 0

    def _look(self, processes: WorkerProcesses) -> Snapshot:
        others = self._registry.others()
        asked = [one for one in processes.workers if one.process is not None]
        everyone: list[WorkerProcess | Registered] = [*asked, *others]
        urls = [one.url for one in everyone]
        views = self._observer.describe(urls)
        self._tasks_told = self._observer.told(urls)
        answers = dict(zip([one.name for one in everyone], views, strict=True))
        for worker in asked:
            if answers[worker.name] is not None:
                processes.answered(worker.name)
        self._registry.write([(one.name, one.url, one.pid) for one in processes.workers])
        seen = self._observer.read()
        at = time.monotonic()
        self._count_rebalances([view for view in views if view is not None])
        shown: list[WorkerProcess | Registered] = [*processes.workers, *others]
        return Snapshot(
            at=at,
            workers=tuple(self._worker(one, answers, at) for one in shown),
            connectors=seen.connectors,
            config_offset=seen.state.offset,
            rebalances=self._rebalances,
            applying=self._applier.applying if self._applier is not None else (),
            refused=self._applier.refused if self._applier is not None else (),
            failures=seen.failures,
            spark_ui=self._spark.ui,
        )

    def _count_rebalances(self, views: Sequence[WorkerView]) -> None:
        """Count rebalances by generations, each of which is one round. Workers' own counts start
        over."""
        members = [view for view in views if view.generation >= 0]
        if not members:
            return
        latest = max(members, key=lambda view: view.generation)
        if self._generation_before is None:
            known = max(view.rebalances for view in members)
            self._generation_before = latest.generation - known
        self._rebalances = max(self._rebalances, latest.generation - self._generation_before)

    def _worker(
        self,
        worker: WorkerProcess | Registered,
        answers: Mapping[str, WorkerView | None],
        at: float,
    ) -> WorkerSnapshot:
        view = answers.get(worker.name)
        if view is not None:
            self._last_views[worker.name] = (at, view)
        last_at, last_view = self._last_views.get(worker.name, (at, None))
        silent_s = at - last_at
        if isinstance(worker, Registered):
            phase = Phase.UP if view is not None else Phase.SILENT
            return WorkerSnapshot(worker.name, phase, worker.pid, view, last_view, silent_s)
        phase = worker.phase
        if phase is Phase.UP and view is None and silent_s >= SILENT_AFTER_S:
            phase = Phase.SILENT
        return WorkerSnapshot(
            worker.name, phase, worker.pid, view, last_view, silent_s, worker.starts, worker.note
        )

    def _write_summary(self, code: int) -> None:
        """Write ``logs/summary.json``, which says what this run did, for scripts and later
        readers."""
        snapshot, skipped = self._snapshot, self._skipped_records()
        sinks = {
            one.connector: {"committed": one.committed, "new": one.new, "lag": one.lag}
            for one in self._totals.sinks
        }
        summary = {
            "pipeline": str(self._pipeline.file),
            "exit_code": code,
            "seconds": round(time.monotonic() - self._started, 3),
            "rebalances": self._rebalances,
            "workers": {
                one.name: {"starts": one.starts, "phase": one.phase.value}
                for one in (snapshot.workers if snapshot else ())
            },
            "topics": {
                one.topic: {"records": one.records, "new": one.new} for one in self._totals.topics
            },
            "connectors": {
                one.name: {"kind": one.kind, "skipped_seen": skipped.get(one.name, 0)}
                | sinks.get(one.name, {})
                for one in (snapshot.connectors if snapshot else ())
            },
            "quarantined": self._quarantined(),
            "reasons": list(self._verdict.reasons) if self._verdict is not None else [],
        }
        path = self._logs / "summary.json"
        try:
            write_private(path, json.dumps(summary, indent=2) + "\n")
        except OSError as error:
            self.last_words.append(f"{path} could not be written: {error.strerror}")

    # -- words --

    def _say(self, text: str) -> None:
        """Show a message. May be called from any thread. Messages of other threads are shown at the
        next beat."""
        with self._said_lock:
            self._lines_to_show.append(text)
        if threading.current_thread() is self._thread:
            self._flush()

    def _mark(self, worker: str, text: str) -> None:
        self.timeline.mark(time.monotonic(), worker, text)

    def _flush(self) -> None:
        with self._said_lock:
            lines, self._lines_to_show = self._lines_to_show, []
        for line in lines:
            self._display.message(line)

    def _views(self) -> list[tuple[str, str, WorkerView | None]]:
        """Return name, URL and last view of each worker that was asked. May be called from any
        thread."""
        snapshot = self._snapshot
        if snapshot is None:
            return []
        return [
            (one.name, f"embedded:{one.name}", one.view if one.phase is Phase.UP else None)
            for one in snapshot.workers
        ]

    def _urls_up(self) -> Sequence[str]:
        if self._processes is None:
            return ()
        return [one.url for one in self._processes.workers if one.phase is Phase.UP]
