"""The numbers of a study's runs, as ``headgate simulate`` prints them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from headgate.ids import TaskId
from headgate.simulation.study import MEASURES, Outcome, Run, Runs, Summary
from headgate.simulation.study.facts import MemberRound

_HEAD: Final = (
    *("at", "event", "rebalances", "moves", "in place", "not running", "longest"),
    *("all run after", "balanced after", "imbalance"),
)
_TEXTS: Final = 2
"""Columns that are texts, and stand at the left."""


def summary_lines(summary: Summary) -> Iterator[str]:
    """One run: a row for the start, one for each event, and the totals without the start."""
    rows = [_HEAD, *map(_row, summary.outcomes)]
    if summary.events:
        rows.append(_totals(summary))
    yield from _table(rows)
    if summary.twice_ms:
        yield f"Tasks ran on two workers at once for {_s(summary.twice_ms)} s, in all."
    if not summary.settled:
        yield "Something was under way still at the end."


def runs_lines(runs: Runs) -> Iterator[str]:
    """Many runs: median and worst of each number, and the seed of the worst; then of each event."""
    texts = runs.texts()
    seeds = [one.seed for one in runs.summaries]
    yield f"{len(seeds)} runs, seeds {seeds[0]} to {seeds[-1]}"
    yield ""
    rows: list[Sequence[str]] = [("all events", "median", "worst", "its seed")]
    for measure, text in MEASURES.items():
        worst, seed = runs.worst(measure)
        rows.append((_unit(measure, text), *_values(measure, runs.median(measure), worst, seed)))
    yield from _table(rows, texts=1)
    if len(texts) > 1:
        yield ""
        yield from _table(_by_event(runs, texts), texts=2)
    late = [one.seed for one in runs.summaries if not one.settled]
    if late:
        shown = ", ".join(map(str, late[:10])) + (" and more" if len(late) > 10 else "")
        yield f"Something was under way still at the end of the runs with seeds {shown}."


def _by_event(runs: Runs, texts: Sequence[str]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("event", "", "median", "worst", "its seed")]
    for number, text in enumerate(texts):
        of_one = runs.event(number)
        for measure in ("moves", "not_running_ms", "balanced_ms"):
            worst, seed = of_one.worst(measure)
            values = _values(measure, of_one.median(measure), worst, seed)
            rows.append((text, _unit(measure, MEASURES[measure].partition(",")[0]), *values))
            text = ""
    return rows


def run_plain(run: Run, summary: Summary) -> dict[str, Any]:
    """One run as JSON has it; times are whole milliseconds."""
    return {
        "title": run.study.title,
        "seed": run.seed,
        "ended_ms": run.ended_ms,
        "settled": run.settled,
        "timeline": [_fact(fact) for fact in run.facts],
        "summary": _summary(summary),
    }


def runs_plain(runs: Runs, title: str) -> dict[str, Any]:
    """Many runs as JSON has them."""
    return {
        "title": title,
        "seeds": [one.seed for one in runs.summaries],
        "measures": _measured(runs),
        "events": [
            {"text": text, "measures": _measured(runs.event(number))}
            for number, text in enumerate(runs.texts())
        ],
        "runs": [{"seed": one.seed, **_summary(one)} for one in runs.summaries],
    }


def _measured(runs: Runs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in MEASURES:
        worst, seed = runs.worst(measure)
        found[measure] = {"median": runs.median(measure), "worst": worst, "seed": seed}
    return found


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        **{measure: getattr(summary, measure) for measure in MEASURES},
        "settled": summary.settled,
        "events": [
            {"event": one.event, "text": one.text, "at_ms": one.at_ms}
            | {measure: getattr(one, measure) for measure in MEASURES}
            for one in summary.outcomes
        ],
    }


def _fact(fact: Any) -> dict[str, Any]:
    return {"what": type(fact).__name__, **_fields(fact)}


def _fields(made: Any) -> dict[str, Any]:
    return {name: _plain(getattr(made, name)) for name in made.__dataclass_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, MemberRound):
        return _fields(value)
    if isinstance(value, TaskId | str):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _row(one: Outcome) -> Sequence[str]:
    return (
        f"{_s(one.at_ms)} s",
        one.text,
        *_numbers(one),
        f"{one.imbalance_max}, then {one.imbalance}",
    )


def _totals(summary: Summary) -> Sequence[str]:
    last = f"{summary.imbalance_max}, then {summary.imbalance}"
    return ("", "in all, without the start", *_numbers(summary), last)


def _numbers(one: Outcome | Summary) -> Sequence[str]:
    return (
        str(one.rebalances),
        str(one.moves),
        str(one.restarts),
        f"{_s(one.not_running_ms)} s",
        f"{_s(one.longest_ms)} s",
        _after(one.running_ms),
        _after(one.balanced_ms),
    )


def _after(ms: int | None) -> str:
    return "never" if ms is None else f"{_s(ms)} s"


def _unit(measure: str, text: str) -> str:
    return f"{text}, s" if measure.endswith("_ms") else text


def _values(measure: str, median: int | None, worst: int | None, seed: int) -> Sequence[str]:
    def shown(value: int | None) -> str:
        if value is None:
            return "never"
        return _s(value) if measure.endswith("_ms") else str(value)

    return shown(median), shown(worst), str(seed)


def _s(ms: int) -> str:
    return f"{ms / 1000:.1f}"


def _table(rows: Sequence[Sequence[str]], texts: int = _TEXTS) -> Iterator[str]:
    """Columns as wide as they need be; the first ones stand at the left, numbers at the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
