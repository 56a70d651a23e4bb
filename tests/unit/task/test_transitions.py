"""Every (state, input) of every task machine: a legal next state, or `IllegalTransitionError`."""

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, get_args

import pytest

from headgate.errors import IllegalTransitionError
from headgate.ids import TargetState
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
from headgate.task.steps import (
    Aborted,
    Ask,
    BatchRetriable,
    BatchRun,
    Begin,
    BodyInput,
    Boundary,
    Closed,
    CommitFailed,
    Committed,
    Consumed,
    Delivered,
    Failed,
    GroupServed,
    LifelineLost,
    OffsetsCommitted,
    OffsetsNotCommitted,
    OffsetsRead,
    PartitionsAssigned,
    PartitionsRevoked,
    Polled,
    ProducerReady,
    PutRetriable,
    RecordsSkipped,
    Report,
    SendFailed,
    SinkRequested,
    Started,
)

INPUTS: tuple[Any, ...] = (
    Begin(),
    Failed(TaskOutcome.FAILED, "broken"),
    LifelineLost("silent"),
    Started(),
    Closed(),
    ProducerReady(),
    OffsetsRead(),
    Polled(),
    Polled(records=3),
    Polled(records=2, skipped=1, detail="x"),
    Polled(retriable="later"),
    Polled(records=3, boundaries=(Boundary(2, Ask.COMMIT), Boundary(3, Ask.ABORT))),
    SendFailed(1, "refused"),
    Committed(),
    Committed(open_records=1),
    Committed(ahead=True),
    CommitFailed("timeout"),
    Aborted(),
    PartitionsAssigned((("t", 0),)),
    PartitionsRevoked((("t", 0),)),
    Consumed(),
    Consumed(records=3),
    Consumed(skipped=1, detail="x"),
    Consumed(dropped=1),
    Delivered(),
    PutRetriable("later"),
    SinkRequested(paused=(("t", 0),)),
    SinkRequested(timeout_ms=500, commit=True),
    OffsetsCommitted(3),
    GroupServed(),
    OffsetsNotCommitted("brokers away"),
    OffsetsNotCommitted("rebalance", again=True),
    BatchRun(0),
    BatchRun(3),
    BatchRetriable("later"),
    RecordsSkipped(1, "x"),
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
    kinds = {*get_args(BodyInput), *get_args(TaskCommand)}
    assert {type(given) for given in INPUTS} == kinds


@pytest.mark.parametrize("makers", [list(sources()), list(sinks()), list(planned())])
def test_the_last_word_is_said_once_and_last(makers: list[Callable[[], TaskMachine]]) -> None:
    for make in makers:
        for _, given in explore(make, 5):
            assert given is not None
        machine = make()
        effects = [
            effect
            for step in (Begin(), StopTask(), LifelineLost("x"))
            for effect in machine.handle(0, step)
        ]
        while not machine.ended:
            outcome = next(
                given
                for given in INPUTS
                if (machine.state, type(given)) in machine.TABLE
                and not isinstance(given, TaskCommand | LifelineLost | Failed)
            )
            effects += machine.handle(0, outcome)
        words = [e for e in effects if isinstance(e, Report) and isinstance(e.report, TaskEnded)]
        assert words == effects[-1:]
