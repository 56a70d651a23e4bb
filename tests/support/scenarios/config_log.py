"""Commands of the scenarios in ``specs/config-log``: records are read, and the state is shown.

A record line is ``<key> <value>``. A line without a value is a tombstone. ``@7 `` before the key
sets the offset, which is otherwise the one after the last. A key with spaces stands in double
quotes, as a JSON string. A key or value that cannot be written as text is given in hexadecimal:
``hex:00ff``.
"""

import json
from collections.abc import Iterator

from support.herder.log_records import log_records
from support.scenarios.runner import Block, World

from headgate.ids import State, TaskId
from headgate.topics import config_records as records
from headgate.topics import config_reducer as reducer
from headgate.topics import fencing, offsets, status
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_state import ConfigState


def parse_record(line: str) -> tuple[int | None, bytes, bytes | None]:
    """Return the offset, if given, the key and the value of a record line."""
    offset: int | None = None
    if line.startswith("@"):
        head, _, line = line.partition(" ")
        offset = int(head[1:])
    if line.startswith('"'):
        key, end = json.JSONDecoder().raw_decode(line)
        rest = line[end:].lstrip(" ")
    else:
        key, _, rest = line.partition(" ")
    return offset, _bytes(key), _bytes(rest) if rest else None


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()


class ConfigLogWorld(World):
    def __init__(self) -> None:
        self.state = ConfigState()
        self.next_offset = 0

    def decode(self, block: Block) -> Iterator[ConfigEvent]:
        for line in block.input:
            offset, key, value = parse_record(line)
            if offset is None:
                offset = self.next_offset
            self.next_offset = offset + 1
            yield records.decode(offset, key, value)

    def do_log(self, block: Block) -> list[str]:
        """Append records and read them. Show the config offset and the records that were
        refused."""
        events = list(self.decode(block))
        before = self.state.rejected_count
        self.state = reducer.fold(self.state, events)
        refused = self.state.rejected[
            len(self.state.rejected) - self.state.rejected_count + before :
        ]
        lines = [f"offset={self.state.offset}"]
        lines += [
            f"refused @{event.offset} {event.key}: {event.reason}"
            + ("" if event.advances else " (does not advance)")
            for event in refused
        ]
        return lines

    def do_events(self, block: Block) -> list[str]:
        """Show the events of the records, without folding them."""
        return [repr(event) for event in self.decode(block)]

    def do_state(self, block: Block) -> list[str]:
        """Show all of the state, or that of the connectors named."""
        names = block.words or sorted(self.state.entries)
        lines: list[str] = []
        if not block.words:
            lines.append(
                f"offset={self.state.offset} assignment_offset={self.state.assignment_offset}"
            )
            if self.state.session_key is not None:
                lines.append(repr(self.state.session_key))
        for name in names:
            entry = self.state.entries.get(name)
            if entry is None:
                lines.append(f"{name}: nothing")
                continue
            lines.append(f"{name}: config={_json(entry.config)}")
            lines.append(
                f"  target_state={self.state.target_state(name)} "
                f"tasks={_json({str(k): v for k, v in self._tasks(name)})}"
            )
            lines.append(
                f"  task_count={entry.task_count} task_generation={entry.task_generation} "
                f"commit_offset={entry.commit_offset} inconsistent={entry.inconsistent}"
            )
            lines.append(
                f"  deferred={sorted(entry.deferred)} applied={_json(entry.applied)} "
                f"fencing_count={entry.fencing_count} fencing_pending={entry.fencing_pending}"
            )
        return lines

    def _tasks(self, name: str) -> list[tuple[int, object]]:
        tasks = self.state.tasks(name)
        return [(task.task, self.state.task_config(task)) for task in tasks]

    def do_tasks(self, block: Block) -> str:
        """Show the ids of the tasks to be assigned, by connector."""
        names = block.words or list(self.state.connector_names())
        return "\n".join(
            f"{name}: {', '.join(map(str, self.state.tasks(name))) or 'none'}" for name in names
        )

    def do_target_state(self, block: Block) -> list[str]:
        return [f"{name}: {self.state.target_state(name)}" for name in block.words]

    def do_fence(self, block: Block) -> list[str]:
        """Show which producers are to be fenced before the source tasks of a connector may
        start."""
        (name,) = block.words
        requirement = fencing.fencing_requirement(self.state, name, block.options["group"])
        start = "yes" if fencing.may_start_source_tasks(self.state, name) else "no"
        return [repr(requirement), f"may start: {start}"]


class OffsetsWorld(World):
    """Commands of ``specs/offsets``: the offsets topics and the offset view."""

    def __init__(self) -> None:
        self.shared = offsets.OffsetTable()
        self.own: offsets.OffsetTable | None = None

    def do_global(self, block: Block) -> str:
        """Read records of the workers' offsets topic. A line is ``<key> <value>``, split at the
        space after the key's ``]``."""
        self.shared = _folded(self.shared, block)
        return _table_shown(self.shared)

    def do_own(self, block: Block) -> str:
        """Read records of the connector's own offsets topic."""
        table = self.own or offsets.OffsetTable()
        self.own = _folded(table, block)
        return _table_shown(self.own)

    def do_rejected(self, block: Block) -> list[str]:
        """Show the rejected records of the workers' offsets topic, with the reasons."""
        return [f"{one.key}: {one.reason}" for one in self.shared.rejected] or ["nothing"]

    @property
    def view(self) -> offsets.OffsetView:
        return offsets.OffsetView(self.shared, self.own)

    def do_view(self, block: Block) -> list[str]:
        (name,) = block.words
        lines = [
            f"{_json(line.partition)} -> {line.problem or _json(line.offset)}"
            for line in self.view.partitions(name)
        ]
        return lines or ["nothing"]

    def do_offset(self, block: Block) -> str:
        name, partition = block.words
        return _json(self.view.offset(name, json.loads(partition)))

    def do_alter(self, block: Block) -> list[str]:
        """Show the writes of an alteration. A line is ``<partition> <offset>``, both JSON."""
        (name,) = block.words
        decoder = json.JSONDecoder()
        changes = []
        for line in block.input:
            partition, end = decoder.raw_decode(line)
            changes.append((partition, json.loads(line[end:])))
        return _writes(offsets.plan_alteration(self.view, name, changes))

    def do_reset(self, block: Block) -> list[str]:
        (name,) = block.words
        return _writes(offsets.plan_reset(self.view, name))

    def do_key(self, block: Block) -> list[str]:
        (name,) = block.words
        return [offsets.encode_key(name, json.loads(line)).decode() for line in block.input]


def _offset_record(line: str) -> tuple[bytes, bytes | None]:
    key, bracket, value = line.rpartition("] ")
    if not bracket:
        return line.encode(), None
    return (key + "]").encode(), value.encode()


def _folded(table: offsets.OffsetTable, block: Block) -> offsets.OffsetTable:
    return offsets.fold_offsets(table, log_records(map(_offset_record, block.input)))


def _table_shown(table: offsets.OffsetTable) -> str:
    count = sum(len(partitions) for partitions in table.connectors.values())
    return f"{count} partitions, {table.rejected_count} rejected"


def _writes(writes: offsets.OffsetWrites) -> list[str]:
    lines = [f"global: {key.decode()} tombstone" for key, _ in writes.shared_tombstones]
    for key, value in writes.primary:
        lines.append(f"primary: {key.decode()} {value.decode() if value else 'tombstone'}")
    lines += [f"global: {key.decode()} {value.decode()}" for key, value in writes.shared_copies]
    return lines or ["nothing"]


class StatusWorld(ConfigLogWorld):
    """Commands of ``specs/status``: the commands of the config log, and those of the status
    topic."""

    def __init__(self) -> None:
        super().__init__()
        self.view = status.StatusView()

    def do_status(self, block: Block) -> list[str]:
        """Append records of the status topic and read them. Show the records that were refused."""
        events = []
        for line in block.input:
            _, key, value = parse_record(line)
            events.append(status.decode_status(key, value))
        self.view = status.fold_statuses(self.view, events)
        refused = [event for event in events if isinstance(event, status.StatusRejected)]
        return [f"refused {event.key}: {event.reason}" for event in refused] or ["ok"]

    def do_show(self, block: Block) -> list[str]:
        """Show the answer to GET status, by connector."""
        return [_json(self.view.answer(name, "source")) for name in block.words]

    def do_topics(self, block: Block) -> list[str]:
        (name,) = block.words
        return [repr(item) for _, item in sorted(self.view.topics.get(name, {}).items())] or [
            "none"
        ]

    def do_may_write(self, block: Block) -> str:
        """Show whether a status may be written: ``may-write <connector>-<n> STATE worker=w
        generation=g [safe] [assigned]``."""
        item, state, *flags = block.words
        options = block.options
        mine = status.Status(State(state), options["worker"], int(options["generation"]))
        allowed = status.may_write(
            self.view.task(TaskId.parse(item)),
            mine,
            safe="safe" in flags,
            assigned_to_me="assigned" in flags,
        )
        return "yes" if allowed else "no"

    def do_cleanup(self, block: Block) -> list[str]:
        tombstones = status.cleanup(self.view, self.state, frozenset(block.words))
        return [key for key, _ in tombstones] or ["nothing"]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


WORLDS = {"config-log": ConfigLogWorld, "offsets": OffsetsWorld, "status": StatusWorld}
