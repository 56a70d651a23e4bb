"""Read what Connect's topics say, and decide with it: docs/build/embedding.md goes through this.

Everything is plain data, so the topics may come from a dump, a test or a consumer of your own.
"""

from headgate import (
    POLICIES,
    ConfigState,
    LogRecord,
    MemberWork,
    OffsetTable,
    OffsetView,
    RoundInput,
    StatusView,
    TargetState,
    TaskId,
    decode,
    decode_status,
    encode_commit,
    encode_connector,
    encode_target_state,
    encode_task,
    encode_task_count,
    fencing_requirement,
    fold,
    fold_offsets,
    fold_statuses,
)

CONFIG_TOPIC = [
    encode_connector("orders", {"connector.class": "FileStreamSource", "tasks.max": "2"}),
    encode_task(TaskId("orders", 0), {"file": "a.txt"}),
    encode_task(TaskId("orders", 1), {"file": "b.txt"}),
    encode_commit("orders", 2),
    encode_task_count("orders", 2),
    encode_target_state("orders", TargetState.PAUSED),
    encode_task(TaskId("orders", 0), {"file": "a.txt"}),
    encode_task(TaskId("orders", 1), {"file": "c.txt"}),
    encode_commit("orders", 2),
]
OFFSETS_TOPIC = [
    (b'["orders",{"filename":"a.txt"}]', b'{"position":120}'),
    (b'["orders",{"filename":"b.txt"}]', b'{"position":7}'),
    (b'["orders",{"filename":"b.txt"}]', None),
]
STATUS_TOPIC = [
    ("status-task-orders-0", b'{"state":"RUNNING","worker_id":"w1:8083","generation":4}'),
]


def show_config() -> ConfigState:
    events = [decode(offset, key, value) for offset, (key, value) in enumerate(CONFIG_TOPIC)]
    state = fold(ConfigState(), events)
    for name in state.connector_names():
        print(name, state.target_state(name), *state.tasks(name), "at offset", state.offset)
    print(state.task_config(TaskId("orders", 1)))
    return state


def show_fencing(state: ConfigState) -> None:
    """The tasks were committed again after two producers had been recorded."""
    needed = fencing_requirement(state, "orders", group="connect-cluster")
    print(type(needed).__name__, getattr(needed, "transactional_ids", ()))


def show_assignment(state: ConfigState) -> None:
    """What each of two new workers gets."""
    round_input = RoundInput(
        members=(MemberWork("w1"), MemberWork("w2")),
        leader="w1",
        generation=1,
        last_completed_generation=-1,
        connectors={name: len(state.tasks(name)) for name in state.connector_names()},
        delay_ms_max=300_000,
        now_ms=0,
    )
    assigned = POLICIES["kip415"](round_input, None)
    for member, work in assigned.members.items():
        print(member, *work.assigned_connectors, *work.assigned_tasks)


def show_offsets() -> None:
    records = [LogRecord(n, key, value) for n, (key, value) in enumerate(OFFSETS_TOPIC)]
    view = OffsetView(fold_offsets(OffsetTable(), records))
    for line in view.partitions("orders"):
        print(line.partition, line.offset)


def show_statuses() -> None:
    view = fold_statuses(StatusView(), (decode_status(key, value) for key, value in STATUS_TOPIC))
    for number, status in view.tasks["orders"].items():
        print(TaskId("orders", number), status.state, status.worker_id)


def main() -> None:
    state = show_config()
    show_fencing(state)
    show_assignment(state)
    show_offsets()
    show_statuses()


if __name__ == "__main__":
    main()
