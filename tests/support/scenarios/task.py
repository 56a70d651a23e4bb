"""Commands of the scenarios in ``specs/task``: the inputs of a task machine, and its effects.

source exactly-once boundary=poll          makes the machine; also `sink`, `planned`
----
new

at 100                                     the inputs that follow come at this time
Polled records=3
----
SendRecords(first=0, end=3), CommitTransaction() -> committing
"""

import inspect
import json
from typing import Any

from support.scenarios.runner import Block, World

from headgate.ids import TargetState
from headgate.task import messages, steps
from headgate.task.machine import TaskMachine
from headgate.task.planned import PlannedMachine
from headgate.task.sink import SinkMachine, SinkSettings
from headgate.task.source import SourceMachine, SourceSettings, TransactionBoundary
from headgate.task.steps import Ask, Boundary

KINDS = {
    name: kind
    for module in (messages, steps)
    for name, kind in vars(module).items()
    if inspect.isclass(kind)
}


class TaskWorld(World):
    def __init__(self) -> None:
        self._machine: TaskMachine | None = None
        self._now = 0

    def do_source(self, block: Block) -> str:
        options = block.options
        return self._made(
            SourceMachine(
                SourceSettings(
                    exactly_once="exactly-once" in block.words,
                    boundary=TransactionBoundary(options.get("boundary", "poll")),
                    interval_ms=int(options.get("interval", "60000")),
                    tolerate=options.get("tolerance") == "all",
                    target_state=TargetState(options.get("target", "STARTED")),
                )
            )
        )

    def do_sink(self, block: Block) -> str:
        options = block.options
        return self._made(
            SinkMachine(
                SinkSettings(
                    flush_interval_ms=int(options.get("interval", "60000")),
                    tolerate=options.get("tolerance") == "all",
                    target_state=TargetState(options.get("target", "STARTED")),
                )
            )
        )

    def do_planned(self, block: Block) -> str:
        return self._made(PlannedMachine(TargetState(block.options.get("target", "STARTED"))))

    def _made(self, machine: TaskMachine) -> str:
        self._machine = machine
        return str(machine.state)

    def do_at(self, block: Block) -> list[str]:
        assert self._machine is not None
        self._now = int(block.words[0])
        lines: list[str] = []
        for line in block.input:
            effects = self._machine.handle(self._now, _parsed(line))
            wanted = ", ".join(_short(effect) for effect in effects) or "nothing"
            lines.append(f"{wanted} -> {self._machine.state}")
        return lines


def _parsed(line: str) -> Any:
    name, *words = line.split(maxsplit=1)
    fields: dict[str, Any] = {}
    for pair in words[0].split(" ; ") if words else []:
        key, _, text = pair.partition("=")
        try:
            fields[key] = json.loads(text)
        except ValueError:
            fields[key] = text
    if "boundaries" in fields:
        fields["boundaries"] = [
            Boundary(int(end), Ask(ask))
            for end, ask in (part.split(":") for part in fields["boundaries"].split(","))
        ]
    if "outcome" in fields:
        fields["outcome"] = messages.TaskOutcome(fields["outcome"])
    for name_of_field in ("partitions", "paused", "resumed"):
        if name_of_field in fields:
            places = fields[name_of_field]
            fields[name_of_field] = tuple((topic, part) for topic, part in places)
    return KINDS[name](**fields)


def _short(effect: object) -> str:
    if isinstance(effect, steps.Report):
        return f"Report({_plain(effect.report)})"
    return _plain(effect)


def _plain(item: object) -> str:
    """Return a `repr` without the fields that have their default."""
    parts = [
        f"{name}={_text(getattr(item, name))}"
        for name, parameter in inspect.signature(type(item)).parameters.items()
        if getattr(item, name) != parameter.default
    ]
    return f"{type(item).__name__}({', '.join(parts)})"


def _text(value: object) -> str:
    return _plain(value) if isinstance(value, messages.TaskEnded) else str(value)


WORLDS = {"task": TaskWorld}
