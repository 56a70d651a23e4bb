"""Every (state, input) of every task machine: a legal next state, or `IllegalTransitionError`."""

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, get_args

import pytest

from headgate.errors import IllegalTransitionError
from headgate.ids import TargetState
from headgate.task import steps
from headgate.task.machine import TaskMachine
from headgate.task.messages import (
    FencingAnswered,
    PauseTask,
    RecheckAnswered,
    ResumeTask,
    StopTask,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
)
from headgate.task.planned import PLANNED_TRANSITIONS, PlannedMachine
from headgate.task.sink import SINK_TRANSITIONS, SinkMachine, SinkSettings
from headgate.task.source import (
    SOURCE_TRANSITIONS,
    SourceMachine,
    SourceSettings,
    TransactionBoundary,
)

INPUTS: tuple[Any, ...] = (
    steps.Begin(),
    steps.Failed(TaskOutcome.FAILED, "broken"),
    steps.LifelineLost("silent"),
    steps.Started(),
    steps.Closed(),
    steps.ProducerReady(),
    steps.OffsetsRead(),
    steps.Polled(),
    steps.Polled(records=3),
    steps.Polled(records=2, skipped=1, detail="x"),
    steps.Polled(retriable="later"),
    steps.Polled(
        records=3,
        boundaries=(steps.Boundary(2, steps.Ask.COMMIT), steps.Boundary(3, steps.Ask.ABORT)),
    ),
    steps.SendFailed(1, "refused"),
    steps.Committed(),
    steps.Committed(open_records=1),
    steps.Committed(ahead=True),
    steps.CommitFailed("timeout"),
    steps.Aborted(),
    steps.PartitionsAssigned((("t", 0),)),
    steps.PartitionsRevoked((("t", 0),)),
    steps.Consumed(),
    steps.Consumed(records=3),
    steps.Consumed(skipped=1, detail="x"),
    steps.Consumed(dropped=1),
    steps.Delivered(),
    steps.PutRetriable("later"),
    steps.SinkRequested(paused=(("t", 0),)),
    steps.SinkRequested(timeout_ms=500, commit=True),
    steps.OffsetsCommitted(3),
    steps.GroupServed(),
    steps.OffsetsNotCommitted("brokers away"),
    steps.OffsetsNotCommitted("rebalance", again=True),
    steps.BatchRun(0),
    steps.BatchRun(3),
    steps.BatchRetriable("later"),
    steps.RecordsSkipped(1, "x"),
    FencingAnswered(),
    FencingAnswered("no"),
    RecheckAnswered(),
    RecheckAnswered("newer"),
    PauseTask(),
    ResumeTask(),
    StopTask(),
)


def sources() -> Iterator[Callable[[], TaskMachine]]:
    for once, boundary, tolerate, target in itertools.product(
        (True, False), TransactionBoundary, (True, False), (TargetState.STARTED, TargetState.PAUSED)
    ):
        settings = SourceSettings(once, boundary, 1_000, tolerate, target)
        yield lambda settings=settings: SourceMachine(settings)


def sinks() -> Iterator[Callable[[], TaskMachine]]:
    for tolerate, target in itertools.product((True, False), TargetState):
        settings = SinkSettings(1_000, tolerate, target)
        yield lambda settings=settings: SinkMachine(settings)


def planned() -> Iterator[Callable[[], TaskMachine]]:
    for target in (TargetState.STARTED, TargetState.PAUSED):
        yield lambda target=target: PlannedMachine(target)


KINDS = [
    (SOURCE_TRANSITIONS, list(sources())),
    (SINK_TRANSITIONS, list(sinks())),
    (PLANNED_TRANSITIONS, list(planned())),
]


def explore(make: Callable[[], TaskMachine], depth: int) -> Iterator[tuple[TaskMachine, Any]]:
    """Every input at every machine that is reached, by state and flags, within `depth` inputs; of
    many that are as deep a few of each state."""
    seen: set[str] = set()
    paths: list[tuple[Any, ...]] = [()]
    for _ in range(depth):
        following: dict[StrEnum, list[tuple[Any, ...]]] = {}
        for path in paths:
            for given in INPUTS:
                machine = make()
                for now, step in enumerate(path):
                    machine.handle(now * 400, step)
                yield machine, given
                try:
                    machine.handle(len(path) * 400, given)
                except IllegalTransitionError:
                    continue
                flags = {k: v for k, v in vars(machine).items() if not k.endswith("_ms")}
                key = f"{flags}"
                if key not in seen:
                    seen.add(key)
                    following.setdefault(machine.state, []).append((*path, given))
        by_turns = itertools.chain(*itertools.zip_longest(*following.values()))
        paths = [path for path in by_turns if path is not None][:25]


@pytest.mark.parametrize(("table", "makers"), KINDS, ids=["source", "sink", "planned"])
def test_product(table: Any, makers: list[Callable[[], TaskMachine]]) -> None:
    met: set[tuple[Any, type]] = set()
    for make in makers:
        for machine, given in explore(make, 9):
            state, copy = machine.state, given
            before = dict(vars(machine))
            allowed = table.get((state, type(given)))
            if allowed is None:
                with pytest.raises(IllegalTransitionError, match=type(given).__name__):
                    machine.handle(10_000, copy)
                assert vars(machine) == before
                continue
            met.add((state, type(given)))
    # Every line of the table is of use.
    assert met == set(table), sorted(f"{s} {k.__name__}" for s, k in set(table) - met)


def test_the_inputs_above_are_all_there_are() -> None:
    kinds = {*get_args(steps.BodyInput), *get_args(TaskCommand)}
    assert {type(given) for given in INPUTS} == kinds


@pytest.mark.parametrize("makers", [list(sources()), list(sinks()), list(planned())])
def test_the_last_word_is_said_once_and_last(makers: list[Callable[[], TaskMachine]]) -> None:
    for make in makers:
        for _, given in explore(make, 5):
            assert given is not None
        machine = make()
        effects = [
            effect
            for step in (steps.Begin(), StopTask(), steps.LifelineLost("x"))
            for effect in machine.handle(0, step)
        ]
        while not machine.ended:
            outcome = next(
                given
                for given in INPUTS
                if (machine.state, type(given)) in machine.TABLE
                and not isinstance(given, TaskCommand | steps.LifelineLost | steps.Failed)
            )
            effects += machine.handle(0, outcome)
        words = [
            e for e in effects if isinstance(e, steps.Report) and isinstance(e.report, TaskEnded)
        ]
        assert words == effects[-1:]
