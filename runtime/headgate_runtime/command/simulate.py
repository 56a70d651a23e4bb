"""``headgate simulate STUDY.toml``: rebalances of a cluster in virtual time."""

import json
from collections.abc import Iterator

from headgate.simulation.study import Study, run_seeds, run_study, summary_of
from headgate.simulation.study.times import time_text
from headgate_runtime.command.study_summary import (
    run_plain,
    runs_lines,
    runs_plain,
    summary_lines,
)
from headgate_runtime.command.study_timeline import timeline


def one_run(study: Study, seed: int, *, trace: bool, as_json: bool) -> Iterator[str]:
    """Lines of one run: its timeline and its numbers.

    Raises:
        InvariantBroken: a fault of Headgate's.
    """
    run = run_study(study, seed, trace=trace)
    summary = summary_of(run)
    if as_json:
        yield json.dumps(run_plain(run, summary), ensure_ascii=False)
        return
    yield from _head(study, seed)
    yield from timeline(run)
    yield ""
    yield from summary_lines(summary)


def many_runs(study: Study, seed: int, count: int, *, as_json: bool) -> Iterator[str]:
    """Lines of `count` runs, with seeds from `seed` on: medians and worst. Raises as `one_run`."""
    runs = run_seeds(study, range(seed, seed + count))
    if as_json:
        yield json.dumps(runs_plain(runs, study.title), ensure_ascii=False)
        return
    if study.title:
        yield study.title
    yield from runs_lines(runs)


def _head(study: Study, seed: int) -> Iterator[str]:
    if study.title:
        yield study.title
    settings = study.settings
    connectors = ", ".join(f"{name} with {count}" for name, count in study.connectors.items())
    yield (
        f"{len(study.workers)} workers; tasks: {connectors}; {settings.protocol}, "
        f"scheduled.rebalance.max.delay.ms {time_text(settings.rebalance_delay_ms)}, "
        f"session.timeout.ms {time_text(settings.session_timeout_ms)}; seed {seed}"
    )
    yield ""
