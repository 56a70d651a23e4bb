"""The history of work and owners, recorded from snapshots and drawn as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from headgate.ids import State, TaskId
from headgate_runtime.up import task_flow
from headgate_runtime.up.snapshot import Snapshot

SPANS_MAX = 100_000
"""Most spans that are kept. Beyond that the oldest are dropped: a pipeline that runs for weeks must
not fill the memory."""


Row: TypeAlias = tuple[str, int]
"""Connector name and task number. The connector itself has -1, so it stands above its tasks."""


@dataclass(slots=True)
class Span:
    """A stretch of time in which a worker owned a connector or task in one state."""

    row: Row
    worker: str
    state: State
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a worker."""

    at: float
    worker: str
    text: str


@dataclass(slots=True)
class Timeline:
    """History of a run. Times are monotonic seconds, as in snapshots."""

    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    flow: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)
    """Records per second of each connector, by the time of the snapshot."""
    tasks: task_flow.TaskFlows = field(default_factory=task_flow.TaskFlows)
    start: float | None = None
    end: float = 0.0
    _open: dict[tuple[Row, str], Span] = field(default_factory=dict)
    _workers: list[str] = field(default_factory=list)

    def observe(
        self,
        snapshot: Snapshot,
        rates: Mapping[str, float] | None = None,
        task_rates: Mapping[TaskId, float] | None = None,
    ) -> None:
        """Add a snapshot. A span goes on while consecutive snapshots show the same owner in the
        same state."""
        if self.start is None:
            self.start = snapshot.at
        self.end = snapshot.at
        for worker in snapshot.workers:
            if worker.name not in self._workers:
                self._workers.append(worker.name)
        seen: dict[tuple[Row, str], State] = {}
        for name, owners in snapshot.connector_owners().items():
            for worker_name, state in owners:
                seen[(name, -1), worker_name] = state
        for task, task_owners in snapshot.task_owners().items():
            for worker_name, view in task_owners:
                seen[(task.connector, task.task), worker_name] = view.state
        self._extend(snapshot.at, seen)
        self.tasks.observe(snapshot, task_rates or {})
        if rates is not None:
            self.flow.append((snapshot.at, dict(rates)))
            if len(self.flow) > SPANS_MAX:
                del self.flow[: SPANS_MAX // 10]

    def mark(self, at: float, worker: str, text: str) -> None:
        self.marks.append(Mark(at, worker, text))

    def _extend(self, at: float, seen: dict[tuple[Row, str], State]) -> None:
        for key, state in seen.items():
            span = self._open.get(key)
            if span is not None:
                span.end = at
            if span is None or span.state is not state:
                self._open[key] = Span(*key, state, at, at)
                self.spans.append(self._open[key])
        for key in [key for key in self._open if key not in seen]:
            del self._open[key]
        if len(self.spans) > SPANS_MAX:
            del self.spans[: SPANS_MAX // 10]

    @property
    def workers(self) -> Sequence[str]:
        return tuple(self._workers)

    def rows(self) -> list[Row]:
        """Return the rows: connectors, each with its tasks below it."""
        return sorted({span.row for span in self.spans})


# -- the picture --

COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
"""Paul Tol's "bright" scheme, which colour-blind people can tell apart."""
FLOW_STYLES = ("-", "--", "-.", ":")
WIDTH_INCHES = 11.0
LABEL_LEVELS = 3


def draw(timeline: Timeline, path: Path, title: str) -> None:
    """Write the picture to `path`. Its suffix (.svg, .png) sets the format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = timeline.rows()
    start = timeline.start or 0.0
    gantt = max(1.2, 0.32 * len(rows))
    flow = 1.3 if any(rates for _, rates in timeline.flow) else 0.0
    with pyplot.rc_context({"svg.fonttype": "none", "font.size": 9, "font.family": "DejaVu Sans"}):
        figure, axes = pyplot.subplots(
            2 if flow else 1,
            squeeze=False,
            sharex=True,
            figsize=(WIDTH_INCHES, gantt + flow + 1.6),
            height_ratios=(gantt, flow) if flow else (1,),
            layout="constrained",
        )
        upper, lower = axes[0][0], axes[-1][0]
        number = {row: place for place, row in enumerate(rows)}
        _draw_spans(upper, timeline, number, start)
        flows = task_flow.draw(upper, timeline.tasks, number, start)
        levels = _draw_marks(axes, timeline, start)
        _dress(upper, timeline, rows, task_flow.legend() if flows else [])
        if flow:
            _draw_flow(lower, timeline, start)
        lower.set_xlim(0, max(timeline.end - start, 1.0))
        lower.set_xlabel("seconds")
        upper.set_title(title, loc="left", fontweight="bold", pad=8 + 11 * levels)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def colour(workers: Sequence[str], worker: str) -> str:
    return COLOURS[workers.index(worker) % len(COLOURS)] if worker in workers else "#000000"


def _draw_spans(axes: Any, timeline: Timeline, number: Mapping[Row, int], start: float) -> None:
    for span in timeline.spans:
        running = span.state is State.RUNNING
        axes.barh(
            number[span.row],
            max(span.end - span.start, 0.05),
            left=span.start - start,
            height=0.7 if span.row[1] >= 0 else 0.34,
            color=colour(timeline.workers, span.worker),
            alpha=1.0 if running else 0.4,
            hatch=None if running else _hatch(span.state),
            edgecolor="white",
            linewidth=0.4,
        )


def _hatch(state: State) -> str:
    return "xxx" if state is State.FAILED else "///"


def _draw_marks(axes: Any, timeline: Timeline, start: float) -> int:
    """Draw a line through the picture for each mark. Texts that would overlap get different
    heights.

    Returns how many heights are in use.
    """
    length = max(timeline.end - start, 1.0)
    free_from = [float("-inf")] * LABEL_LEVELS
    for mark in sorted(timeline.marks, key=lambda one: one.at):
        for row in axes:
            row[0].axvline(mark.at - start, color="#222222", linewidth=0.9, linestyle=(0, (3, 2)))
        text = f"{mark.worker} {mark.text}"
        place = mark.at - start
        level = next((n for n, end in enumerate(free_from) if end <= place), 0)
        # Seconds of the axis that the text covers, roughly, at 8 points.
        free_from[level] = place + (len(text) + 2) * length / (WIDTH_INCHES * 14.5)
        right = place > 0.85 * length
        axes[0][0].annotate(
            text,
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            xytext=(-3 if right else 3, 2 + 11 * level),
            ha="right" if right else "left",
            fontsize=8,
            color=colour(timeline.workers, mark.worker),
            fontweight="bold",
            annotation_clip=False,
        )
    return sum(end > float("-inf") for end in free_from)


def _draw_flow(axes: Any, timeline: Timeline, start: float) -> None:
    names = sorted({name for _, rates in timeline.flow for name in rates})
    times = [at - start for at, _ in timeline.flow]
    for number, name in enumerate(names):
        axes.plot(
            times,
            [rates.get(name, 0.0) for _, rates in timeline.flow],
            color="#333333" if number % 2 == 0 else "#999999",
            linestyle=FLOW_STYLES[number % len(FLOW_STYLES)],
            linewidth=1.2,
            label=name,
        )
    axes.set_ylabel("records/s")
    peak = max((rate for _, rates in timeline.flow for rate in rates.values()), default=0.0)
    axes.set_ylim(0, 1.3 * peak or 1.0)  # room for the legend
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper right", ncols=4, fontsize=8, frameon=True, framealpha=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _dress(axes: Any, timeline: Timeline, rows: Sequence[Row], flows: Sequence[Any] = ()) -> None:
    from matplotlib.patches import Patch

    axes.set_yticks(range(len(rows)), [name if n < 0 else f"{name}-{n}" for name, n in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row[1] >= 0 else "bold")
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    handles: list[Any] = [
        Patch(facecolor=colour(timeline.workers, worker), label=worker)
        for worker in timeline.workers
    ]
    states = {span.state for span in timeline.spans}
    for label, hatch, seen in (
        ("not running", "///", states - {State.RUNNING, State.FAILED}),
        ("FAILED", "xxx", states & {State.FAILED}),
    ):
        if seen:
            handles.append(Patch(facecolor="#aaaaaa", edgecolor="white", hatch=hatch, label=label))
    handles += flows
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=min(8, len(handles)), frameon=False
    )
