"""Studies of rebalances: a cluster, what happens to it, and what follows, in virtual time.

    study = read_study({"connectors": {"orders": {"tasks": 10}},
                        "events": [{"at": "60s", "do": "crash w2 for 30s"}]})
    summary = summary_of(run_study(study, seed=1))

What runs is the herder, the member and the coordinator that ship, on the simulation's log in
memory. The same study and seed give the same facts. docs/build/simulation.md is the guide.
"""

from collections.abc import Iterable

from headgate.simulation.study.model import Event, Study, Verb, WorkerSettings
from headgate.simulation.study.reading import Problem, StudyError, read_study
from headgate.simulation.study.run import Run, run_study
from headgate.simulation.study.summary import (
    MEASURES,
    Outcome,
    Runs,
    Summary,
    runs_of,
    summary_of,
)

__all__ = [
    "MEASURES",
    "Event",
    "Outcome",
    "Problem",
    "Run",
    "Runs",
    "Study",
    "StudyError",
    "Summary",
    "Verb",
    "WorkerSettings",
    "read_study",
    "run_seeds",
    "run_study",
    "runs_of",
    "summary_of",
]


def run_seeds(study: Study, seeds: Iterable[int]) -> Runs:
    """`study` once with each of `seeds`, in numbers.

    Raises:
        ValueError: no seeds.
        InvariantBroken: as in `run_study`.
    """
    return runs_of(summary_of(run_study(study, seed)) for seed in seeds)
