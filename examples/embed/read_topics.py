"""Read what Connect's topics say, and decide with it: docs/build/embedding.md goes through this.

Everything is plain data, so the topics may come from a dump, a test or a consumer of your own.
"""

import headgate

CONFIG_TOPIC = [
    headgate.encode_connector("orders", {"connector.class": "FileStreamSource", "tasks.max": "2"}),
    headgate.encode_task(headgate.TaskId("orders", 0), {"file": "a.txt"}),
    headgate.encode_task(headgate.TaskId("orders", 1), {"file": "b.txt"}),
    headgate.encode_commit("orders", 2),
    headgate.encode_task_count("orders", 2),
    headgate.encode_target_state("orders", headgate.TargetState.PAUSED),
    headgate.encode_task(headgate.TaskId("orders", 0), {"file": "a.txt"}),
    headgate.encode_task(headgate.TaskId("orders", 1), {"file": "c.txt"}),
    headgate.encode_commit("orders", 2),
]
OFFSETS_TOPIC = [
    (b'["orders",{"filename":"a.txt"}]', b'{"position":120}'),
    (b'["orders",{"filename":"b.txt"}]', b'{"position":7}'),
    (b'["orders",{"filename":"b.txt"}]', None),
]
STATUS_TOPIC = [
    ("status-task-orders-0", b'{"state":"RUNNING","worker_id":"w1:8083","generation":4}'),
]


def show_config() -> headgate.ConfigState:
    events = [
        headgate.decode(offset, key, value) for offset, (key, value) in enumerate(CONFIG_TOPIC)
    ]
    state = headgate.fold(headgate.ConfigState(), events)
    for name in state.connector_names():
        print(name, state.target_state(name), *state.tasks(name), "at offset", state.offset)
    print(state.task_config(headgate.TaskId("orders", 1)))
    return state


def show_fencing(state: headgate.ConfigState) -> None:
    """The tasks were committed again after two producers had been recorded."""
    needed = headgate.fencing_requirement(state, "orders", group="connect-cluster")
    print(type(needed).__name__, getattr(needed, "transactional_ids", ()))


def show_assignment(state: headgate.ConfigState) -> None:
    """What each of two new workers gets."""
    round_input = headgate.RoundInput(
        members=(headgate.MemberWork("w1"), headgate.MemberWork("w2")),
        leader="w1",
        generation=1,
        last_completed_generation=-1,
        connectors={name: len(state.tasks(name)) for name in state.connector_names()},
        delay_ms_max=300_000,
        now_ms=0,
    )
    assigned = headgate.POLICIES["kip415"](round_input, None)
    for member, work in assigned.members.items():
        print(member, *work.assigned_connectors, *work.assigned_tasks)


def show_offsets() -> None:
    records = [headgate.LogRecord(n, key, value) for n, (key, value) in enumerate(OFFSETS_TOPIC)]
    view = headgate.OffsetView(headgate.fold_offsets(headgate.OffsetTable(), records))
    for line in view.partitions("orders"):
        print(line.partition, line.offset)


def show_statuses() -> None:
    view = headgate.fold_statuses(
        headgate.StatusView(), (headgate.decode_status(key, value) for key, value in STATUS_TOPIC)
    )
    for number, status in view.tasks["orders"].items():
        print(headgate.TaskId("orders", number), status.state, status.worker_id)


def main() -> None:
    state = show_config()
    show_fencing(state)
    show_assignment(state)
    show_offsets()
    show_statuses()


if __name__ == "__main__":
    main()
