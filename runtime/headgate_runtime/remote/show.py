"""What the commands print: tables for people, JSON for scripts."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from headgate.connector.config import HIDDEN
from headgate.connector.secret_keys import looks_secret, without_login
from headgate.task.messages import BatchDone
from headgate_runtime.remote.remote import NO_WORK, ConnectorRow, Difference, Plan, Work


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as what is in them; the last one is left as it is."""
    lines = [tuple(head), *(tuple(_one_line(cell) for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def connectors(rows: Sequence[ConnectorRow]) -> str:
    if not rows:
        return "no connectors"
    head = ("CONNECTOR", "TYPE", "STATE", "TASKS", "WORKER")
    return table(head, ((row.name, row.type, state(row), tasks(row), row.worker) for row in rows))


def state(row: ConnectorRow) -> str:
    """The reported state, and what was asked for where that is something else."""
    shown = row.state or "-"
    wanted = {"STARTED": "RUNNING"}.get(row.target_state, row.target_state)
    if wanted and shown not in (wanted, "FAILED"):
        return f"{shown} (asked: {wanted})"
    return shown


def tasks(row: ConnectorRow) -> str:
    """``2 RUNNING, 1 FAILED``"""
    counts = Counter(task.state or "without status" for task in row.tasks)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "none"


def plain(row: ConnectorRow) -> dict[str, Any]:
    """A row for scripts. Nothing is hidden: they may read the config anyway."""
    found = asdict(row)
    if row.hanging_calls is None:
        del found["hanging_calls"], found["hanging_calls_more"]
    return found


def hanging_calls(row: ConnectorRow) -> str:
    """``; slow-0 is in poll since 14:03:22``, or nothing."""
    found = list[str]()
    for call in row.hanging_calls or ():
        of = row.name if call.task is None else f"{row.name}-{call.task}"
        since = datetime.fromtimestamp(call.since_ms / 1000).astimezone()
        found.append(f"{of} is in {call.method} since {since:%Y-%m-%d %H:%M:%S}")
    if row.hanging_calls_more:
        found.append(f"and {row.hanging_calls_more:,} more calls hang")
    return "".join(f"; {each}" for each in found)


def one_connector(row: ConnectorRow, *, with_task_configs: bool = False) -> str:
    lines = [
        f"name    {row.name}",
        f"type    {row.type}",
        f"state   {state(row)}" + (f" on {row.worker}" if row.worker else ""),
    ]
    if row.topics:
        lines.append(f"topics  {', '.join(row.topics)}")
    lines.append("config")
    lines += [f"  {key} = {shown_value(key, value)}" for key, value in sorted(row.config.items())]
    if row.tasks:
        head = ("TASK", "STATE", "WORKER")
        cells = [(str(task.number), task.state or "-", task.worker) for task in row.tasks]
        lines.append(table(head, cells))
    for number, config in enumerate(row.task_configs if with_task_configs else ()):
        lines.append(f"config of task {number}")
        lines += [f"  {key} = {shown_value(key, value)}" for key, value in sorted(config.items())]
    traces = [("connector", row.trace)]
    traces += [(f"task {task.number}", task.trace) for task in row.tasks]
    for what, trace in traces:
        if trace:
            lines += [f"{what} has failed:", *(f"  {line}" for line in trace.rstrip().splitlines())]
    return "\n".join(lines)


def shown_value(key: str, value: str | None) -> str:
    """On a screen passwords are hidden, unless they only refer to what a config provider knows."""
    if value is None:
        return "null"
    if looks_secret(key) and value and not value.startswith("${"):
        return HIDDEN
    return without_login(value)


def differences(
    before: Mapping[str, str | None] | None, after: Mapping[str, str | None]
) -> list[str]:
    """Lines like those of `diff`: what is removed, what is added."""
    lines = []
    old = before or {}
    for key in sorted({*old, *after}):
        if key in old and key in after and old[key] == after[key]:
            continue
        if key in old:
            lines.append(f"- {key} = {shown_value(key, old[key])}")
        if key in after:
            lines.append(f"+ {key} = {shown_value(key, after[key])}")
    return lines


_ACTIONS: Final = {
    "none": "would not change",
    "create": "would be created",
    "change config": "would change",
    "change state": "would change",
    "delete": "would be deleted",
}
MOVES_SHOWN: Final = 20
WORK_SHOWN: Final = 5
_HAS_OWNER: Final = ("RUNNING", "PAUSED", "RESTARTING")
"""States that a worker reports of what it runs."""


def plan(found: Plan) -> str:
    """Lines like those of `diff`: what is removed, what is added; then faults, notes and moves."""
    lines = []
    for row in found.rows:
        lines.append(f"{row.name} {_ACTIONS.get(row.action, row.action)}")
        if row.action == "change state":
            lines.append(f"  + target state {row.state_after}")
        for each in row.differences:
            if each.is_before:
                lines.append(f"  - {each.key} = {_planned_value(each, each.before)}")
            if each.is_after:
                lines.append(f"  + {each.key} = {_planned_value(each, each.after)}")
        lines += [f"  fault: {key}: {text}" for key, text in row.faults]
        lines += [f"  note: {key}: {text}" for key, text in row.notes]
    for what, source, target in found.moves[:MOVES_SHOWN]:
        lines.append(f"{what} would go from {source or 'nowhere'} to {target or 'nowhere'}")
    if found.move_count > MOVES_SHOWN:
        lines.append(f"and {found.move_count - MOVES_SHOWN} more would move (-o json has them)")
    if found.moves_unknown and found.rows:
        lines.append(f"what would move is not known: {found.moves_unknown}")
    return "\n".join(lines)


def _planned_value(each: Difference, value: str | None) -> str:
    return HIDDEN if each.hidden else shown_value(each.key, value)


def offsets(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "no offsets"
    head = ("PARTITION", "OFFSET")
    rows = ((json.dumps(each["partition"]), json.dumps(each["offset"])) for each in found)
    return table(head, rows)


def offset_differences(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "nothing would change"
    head = ("PARTITION", "OFFSET", "WOULD BE")
    return table(
        head, ([json.dumps(each[at]) for at in ("partition", "before", "after")] for each in found)
    )


def status(
    cluster: Mapping[str, Any],
    rows: Sequence[ConnectorRow],
    where: str,
    work: Work = NO_WORK,
) -> str:
    lines = [f"cluster  {cluster['group_id'] or cluster['kafka_cluster_id']} at {where}"]
    workers = cluster["workers"]
    if workers:
        head = ("WORKER", "STATE", "CONNECTORS", "TASKS", "UNDER WAY")
        cells = (
            (
                each["worker_id"] + (" (leader)" if each["leader"] else ""),
                worker_state(each),
                str(each["connector_count"]),
                str(each["task_count"]),
                "; ".join(each["pending"]) or ("nothing" if each["answers"] else "not known"),
            )
            for each in workers
        )
        lines += ["", table(head, cells)]
    if unknown := cluster["others_unknown"]:
        lines += ["", f"other workers are not known: {unknown}"]
    lines += ["", connectors(rows)]
    if lost := on_absent_workers(cluster, rows):
        lines += ["", *lost]
    if work.batches:
        told = sorted((str(each["task"]), str(_batch(each))) for each in work.batches)
        lines += ["", table(("TASK", "LAST BATCH"), told)]
    if calls := [*long_calls(work), *unknown_calls(work)]:
        lines += ["", *calls]
    failed = [row.name for row in rows if row.failed]
    if failed:
        lines += ["", f"failed: {', '.join(failed)}; headgate connectors show NAME says why"]
    aside = set_aside(cluster)
    return "\n".join([*lines, "", *aside] if aside else lines)


def on_absent_workers(cluster: Mapping[str, Any], rows: Sequence[ConnectorRow]) -> list[str]:
    """What the last statuses place on workers that are not in the group, a line for each worker.

    A worker that dies writes no status: until its work is given to others, it is said to run.
    """
    if cluster["others_unknown"] or not cluster["workers"]:
        return []
    present = {each["worker_id"] for each in cluster["workers"]}
    work: dict[str, list[str]] = {}
    for row in rows:
        told = [(row.name, row.state, row.worker)]
        told += [(f"{row.name}-{task.number}", task.state, task.worker) for task in row.tasks]
        for name, reported, worker in told:
            if reported in _HAS_OWNER:
                work.setdefault(worker, []).append(name)
    return [
        f"{worker} is not in the group; it had {_first(names)}"
        for worker, names in sorted(work.items())
        if worker and worker not in present
    ]


def _first(names: Sequence[str]) -> str:
    more = len(names) - WORK_SHOWN
    return ", ".join(names[:WORK_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def plugins(found: Sequence[Mapping[str, Any]]) -> str:
    cells = ((each["class"], each["type"], each.get("version") or "") for each in found)
    return table(("CLASS", "TYPE", "VERSION"), cells)


def plugin(keys: Sequence[Mapping[str, Any]]) -> str:
    """Options of a class: those that must be given first."""
    cells = (
        (
            each["name"],
            str(each["type"]).lower(),
            "required" if each["required"] else str(each.get("default_value") or ""),
            each["documentation"],
        )
        for each in sorted(keys, key=lambda each: not each["required"])
    )
    return table(("OPTION", "TYPE", "DEFAULT", "MEANING"), cells)


def worker_state(told: Mapping[str, Any]) -> str:
    """What is known of a worker: by itself, or by the leader's last round."""
    if told["answers"]:
        return "up"
    return "in the group" if told["member"] else "does not answer"


def set_aside(cluster: Mapping[str, Any], connector: str | None = None) -> list[str]:
    """Inputs that tasks do not read, a line each: of one connector, or of all."""
    found = {one["task"]: one for worker in cluster["workers"] for one in worker["set_aside"]}
    lines: list[str] = []
    for task in sorted(found):
        if connector is not None and task.rpartition("-")[0] != connector:
            continue
        lines += [f"{task} has set aside {each}" for each in found[task]["inputs"]]
        if more := found[task]["more"]:
            lines.append(f"{task} has set aside {more:,} more; the log of its worker names them")
    return lines


def long_calls(work: Work, connector: str | None = None) -> list[str]:
    """Calls that have not returned for long, a line each: into one connector, or into all."""
    return [
        f"{each['task'] or each['connector']} is in {each['method']} for "
        f"{each['took_ms'] // 1000:,} s; the log of its worker says where"
        for each in sorted(work.long_calls, key=lambda each: (each["connector"], each["task"]))
        if connector in (None, each["connector"])
    ]


def unknown_calls(work: Work, workers: Collection[str] | None = None) -> list[str]:
    """Workers of which it is not known whether calls return, a line each; of these, or of all."""
    return [
        f"whether calls into connectors return on {worker} is not known: {reason}"
        for worker, reason in sorted(work.unknown.items())
        if workers is None or worker in workers
    ]


def _batch(told: Mapping[str, Any]) -> BatchDone:
    return BatchDone(**{key: value for key, value in told.items() if key != "task"})


def _one_line(cell: str) -> str:
    return " ".join(cell.split("\n"))
