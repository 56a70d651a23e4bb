"""The view of a cluster for a person: three tables and the findings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

STATE_STYLES = {
    "RUNNING": "green",
    "FAILED": "bold red",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
    "UNASSIGNED": "dim",
    "RESTARTING": "cyan",
}
OFFSETS_SHOWN = 3


def render(view: Mapping[str, Any]) -> RenderableType:
    """Return `headgate_runtime.observe.view.describe` as a person reads it."""
    parts: list[RenderableType] = [_head(view), _workers(view["group"]), _work(view["connectors"])]
    offsets = _offsets(view["connectors"])
    if offsets.row_count:
        parts.append(offsets)
    parts.append(_findings(view["findings"]))
    return Group(*parts)


def _head(view: Mapping[str, Any]) -> Text:
    group, config = view["group"], view["config"]
    generation = group["generation"]
    words = [
        f"group {group['id']}: {group['state']}",
        f"protocol {group['protocol']}" if group["protocol"] else "no protocol",
        f"leader {group['leader'] or 'nobody'}",
    ]
    if generation is not None:
        words.append(f"statuses up to generation {generation}")
    words.append(f"{config['topic']} read to offset {max(config['offset'], 0)}")
    key = config["session_key"]
    words.append(f"session key {key['algorithm']}" if key else "no session key")
    return Text(", ".join(words))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _workers(group: Mapping[str, Any]) -> Table:
    table = _table("Workers", "worker", "config offset", "connectors", "tasks", "delay")
    for member in group["members"]:
        leads = member["name"] == group["leader"]
        offset = member["config_offset"]
        table.add_row(
            Text(member["name"] + (" (leader)" if leads else ""), style="bold" if leads else ""),
            "?" if offset is None else str(offset),
            ", ".join(member["connectors"]) or "-",
            ", ".join(member["tasks"]) or "-",
            f"{member['delay_ms'] / 1000:g} s" if member["delay_ms"] else "-",
        )
    if not group["members"]:
        table.add_row(Text("the group has no members", style="dim"))
    return table


def _work(connectors: Mapping[str, Any]) -> Table:
    table = _table("Connectors and tasks", "work", "target", "state", "owner", "status", "fencing")
    for name, one in connectors.items():
        state = Text("INCONSISTENT", style="bold red") if one["inconsistent"] else _state(one)
        table.add_row(
            Text.assemble((name, "bold"), (f" ({one['type']})", "dim")),
            one["target_state"],
            state,
            one["owner"] or "-",
            _reported_by(one),
            _fencing(one["fencing"]),
        )
        for task in one["tasks"]:
            table.add_row(
                f"  {name}-{task['id']}",
                "",
                _state(task),
                task["owner"] or "-",
                _reported_by(task),
                "",
            )
    if not connectors:
        table.add_row(Text("no connectors are configured", style="dim"))
    return table


def _state(one: Mapping[str, Any]) -> Text:
    state = one["state"]
    return Text(state or "-", style=STATE_STYLES.get(state or "", ""))


def _reported_by(one: Mapping[str, Any]) -> str:
    """Return the generation of the status, and its worker if that is not the owner."""
    if one["worker_id"] is None:
        return "-"
    by = "" if one["worker_id"] == one["owner"] else f" by {one['worker_id']}"
    return f"generation {one['generation']}{by}"


def _fencing(fencing: Mapping[str, Any]) -> str:
    if fencing["count"] is None:
        return "pending" if fencing["waiting"] else "-"
    return f"{fencing['count']} recorded" + (", pending" if fencing["pending"] else "")


def _offsets(connectors: Mapping[str, Any]) -> Table:
    table = _table("Offsets", "connector", "where it is")
    for name, one in connectors.items():
        if "progress" in one:
            progress = one["progress"]
            lines = [f"lag {progress['lag']:,} (group {progress['group']})"]
            lines += [
                f"{p['topic']}-{p['partition']}: "
                f"{'nothing' if p['committed'] is None else p['committed']} of {p['end']}"
                for p in progress["partitions"]
            ]
        else:
            lines = [f"{_json(o['partition'])}: {_json(o['offset'])}" for o in one["offsets"]]
        if lines:
            more = len(lines) - OFFSETS_SHOWN - 1
            shown = lines[: OFFSETS_SHOWN + 1] + ([f"and {more} more"] if more > 0 else [])
            table.add_row(name, Text("\n".join(shown)))
    return table


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _findings(findings: Sequence[str]) -> Text:
    if not findings:
        return Text("Nothing is out of order.", style="green")
    return Text("\n".join(["Look at:", *(f"  - {finding}" for finding in findings)]))
