"""Rows per second and commits of each task, for the picture of ``headgate up --timeline``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.ids import TaskId
from headgate_runtime.up.snapshot import Snapshot

LOOKS_MAX: Final = 20_000
"""Looks that are kept of each task. Beyond that the oldest are dropped."""
HALF: Final = 0.35
"""Half the height of a task's bar, in rows of the picture."""
LINE: Final = "#111111"
SHORT: Final = 3
"""Commits in one look from which on a mark is thicker: single ones could not be told apart."""


@dataclass(slots=True)
class Flow:
    """What one task did over time."""

    rates: list[tuple[float, float]] = field(default_factory=list)
    commits: list[tuple[float, int]] = field(default_factory=list)
    """Commits since the look before, by time."""
    rows: int = 0
    committed: int = 0
    """Rows and commits of all runs."""
    _rows_of_run: int = 0
    _commits_of_run: int = 0

    def observe(self, at: float, rate: float, rows: int, commits: int, *, first: bool) -> None:
        """Note a look at a task. `rows` and `commits` are those of the current run: smaller ones
        than before mean a new run."""
        new_rows = rows - self._rows_of_run if rows >= self._rows_of_run else rows
        new = commits - self._commits_of_run if commits >= self._commits_of_run else commits
        self._rows_of_run, self._commits_of_run = rows, commits
        if first:  # work before the first look has no place in the picture
            new_rows = new = 0
        self.rows += new_rows
        self.committed += new
        self.rates.append((at, rate))
        if new:
            self.commits.append((at, new))
        for kept in (self.rates, self.commits):
            if len(kept) > LOOKS_MAX:
                del kept[: LOOKS_MAX // 10]

    @property
    def peak(self) -> float:
        return max((rate for _, rate in self.rates), default=0.0)

    def __str__(self) -> str:
        commits = f"{self.committed:,} commit{'' if self.committed == 1 else 's'}"
        return f"{self.rows:,} rows, {commits}, peak {self.peak:,.0f}/s"


@dataclass(slots=True)
class TaskFlows:
    """The `Flow` of each task that was seen."""

    by_task: dict[TaskId, Flow] = field(default_factory=dict)
    _looks: int = 0

    def observe(self, snapshot: Snapshot, rates: Mapping[TaskId, float]) -> None:
        self._looks += 1
        for task, owners in snapshot.task_owners().items():
            # A run that begins while we look counts from its beginning.
            first = task not in self.by_task and self._looks == 1
            flow = self.by_task.setdefault(task, Flow())
            _, view = owners[-1]
            rate = rates.get(task, 0.0)
            flow.observe(snapshot.at, rate, view.records, view.commits, first=first)


def draw(axes: Any, flows: TaskFlows, places: Mapping[tuple[str, int], int], start: float) -> bool:
    """Draw into the bars of the tasks. Return whether there was anything to draw.

    Args:
        places: row of the picture, by connector and number of the task.
    """
    from matplotlib import patheffects

    casing = [patheffects.withStroke(linewidth=2.6, foreground="white")]
    drawn = False
    for task, flow in flows.by_task.items():
        place = places.get((task.connector, task.task))
        if place is None or not (flow.peak or flow.committed):
            continue
        drawn = True
        low, scale = place + HALF - 0.04, 2 * HALF - 0.08
        peak = flow.peak or 1.0
        axes.plot(
            [at - start for at, _ in flow.rates],
            [low - scale * rate / peak for _, rate in flow.rates],
            color=LINE,
            linewidth=1.0,
            path_effects=casing,
            solid_joinstyle="round",
            zorder=4,
        )
        for thick, chosen in (
            (False, [at for at, new in flow.commits if new < SHORT]),
            (True, [at for at, new in flow.commits if new >= SHORT]),
        ):
            axes.vlines(
                [at - start for at in chosen],
                place + HALF + 0.02,
                place + HALF + 0.13,
                color=LINE,
                linewidth=2.2 if thick else 0.9,
                zorder=4,
            )
        axes.annotate(
            str(flow),
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color="#333333",
            annotation_clip=False,
        )
    return drawn


def legend() -> list[Any]:
    """Return legend handles for what `draw` draws."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=LINE, linewidth=1.0, label="rows/s, up to the task's peak"),
        Line2D([], [], color=LINE, marker="|", linestyle="", markersize=7, label="commit"),
    ]
