"""What holds for every status topic and every offsets topic."""

from copy import deepcopy
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate import offsets, status
from headgate.ids import State, TaskId
from headgate.status import Status, StatusView, TopicActivity, fold_statuses

NAMES = st.sampled_from(["a", "b-1"])
TASKS = st.builds(TaskId, NAMES, st.integers(0, 2))
STATUSES = st.builds(
    Status,
    st.sampled_from(State),
    st.sampled_from(["w1:1", "w2:1"]),
    st.integers(0, 3),
    st.none() | st.text(max_size=4),
    st.none() | st.just("1"),
)
STATUS_EVENTS = st.one_of(
    st.builds(status.ConnectorStatusReported, NAMES, STATUSES),
    st.builds(status.ConnectorStatusRemoved, NAMES),
    st.builds(status.TaskStatusReported, TASKS, STATUSES),
    st.builds(status.TaskStatusRemoved, TASKS),
    st.builds(
        lambda topic, name: status.TopicUsed(topic, name, TopicActivity(topic, name, 0, 1)),
        st.sampled_from(["t", "u"]),
        NAMES,
    ),
    st.builds(status.TopicReset, st.sampled_from(["t", "u"]), NAMES),
    st.just(status.StatusRejected("k", "r")),
)


@given(st.lists(STATUS_EVENTS, max_size=25), st.lists(st.integers(0, 25), max_size=5))
def test_statuses_fold_alike_in_any_batching(
    events: list[status.StatusEvent], cuts: list[int]
) -> None:
    view = StatusView()
    seen = [(view, deepcopy(repr(view)))]
    for start, end in pairwise([0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]):
        view = fold_statuses(view, events[start:end])
        seen.append((view, repr(view)))
    assert view == fold_statuses(StatusView(), events)
    assert all(repr(old) == before for old, before in seen)


@given(TASKS, STATUSES)
def test_statuses_come_back_as_written(task: TaskId, written: Status) -> None:
    key, value = status.encode_task_status(task, written)
    assert status.decode_status(key, value) == status.TaskStatusReported(task, written)
    key, value = status.encode_connector_status(task.connector, written)
    event = status.decode_status(key.encode(), value)
    assert event == status.ConnectorStatusReported(task.connector, written)


@given(st.binary(max_size=20), st.none() | st.binary(max_size=30))
def test_no_status_record_is_too_odd(key: bytes, value: bytes | None) -> None:
    for prefix in (b"", b"status-task-", b"status-connector-", b"status-topic-"):
        fold_statuses(StatusView(), [status.decode_status(prefix + key, value)])


PRIMITIVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
MAPS = st.dictionaries(st.text(max_size=4), PRIMITIVES, max_size=5)
PARTITIONS = st.dictionaries(st.text(max_size=4), PRIMITIVES | st.binary(max_size=3), max_size=5)


@given(st.text(max_size=5), MAPS, MAPS)
def test_offsets_come_back_as_written(
    connector: str, partition: dict[str, object], offset: dict[str, object]
) -> None:
    key = offsets.decode_key(offsets.encode_key(connector, partition))
    assert key is not None
    # A double that is -0.0 is read back as 0.0, by Java as well.
    assert (key.connector, key.partition) == (connector, partition)
    assert offsets.decode_value(offsets.encode_value(offset)) == offset


@given(PARTITIONS, st.randoms())
def test_the_order_of_names_decides_nothing(partition: dict[str, object], random: object) -> None:
    names = list(partition)
    random.shuffle(names)  # type: ignore[attr-defined]
    other = {name: partition[name] for name in names}
    assert offsets.partition_identity(other) == offsets.partition_identity(partition)
    table = offsets.fold_offsets(
        offsets.OffsetTable(), [(offsets.encode_key("c", partition), b'{"n":1}')]
    )
    assert offsets.OffsetView(table).offset("c", other) == {"n": 1}


SMALL = st.sampled_from([{}, {"p": 1}, {"p": 1, "q": 2}, {"q": 2, "p": 1}, None])
OFFSET_RECORDS = st.tuples(
    st.builds(
        lambda name, partition: offsets.dumps([name, partition]), st.sampled_from("ab"), SMALL
    )
    | st.just(b'["a"]'),
    st.none() | st.sampled_from([b'{"n":1}', b'{"n":2}', b"{"]),
)


@given(st.lists(OFFSET_RECORDS, max_size=20), st.lists(st.integers(0, 20), max_size=5))
def test_offsets_fold_alike_in_any_batching(
    found: list[tuple[bytes, bytes | None]], cuts: list[int]
) -> None:
    table = offsets.OffsetTable()
    seen = [(table, repr(table))]
    for start, end in pairwise([0, *sorted(min(cut, len(found)) for cut in cuts), len(found)]):
        table = offsets.fold_offsets(table, found[start:end])
        seen.append((table, repr(table)))
    assert table == offsets.fold_offsets(offsets.OffsetTable(), found)
    assert all(repr(old) == before for old, before in seen)


@given(st.lists(OFFSET_RECORDS, max_size=12), st.none() | st.lists(OFFSET_RECORDS, max_size=12))
def test_a_reset_leaves_nothing(
    shared: list[tuple[bytes, bytes | None]], own: list[tuple[bytes, bytes | None]] | None
) -> None:
    view = offsets.OffsetView(
        offsets.fold_offsets(offsets.OffsetTable(), shared),
        None if own is None else offsets.fold_offsets(offsets.OffsetTable(), own),
    )
    after = written(view, offsets.plan_reset(view, "a"))
    assert after.partitions("a") == ()
    assert after.offset("a", None) is None
    assert after.partitions("b") == view.partitions("b")


@given(
    st.lists(OFFSET_RECORDS, max_size=12),
    st.none() | st.lists(OFFSET_RECORDS, max_size=12),
    st.lists(st.tuples(SMALL, st.none() | st.just({"n": 9})), max_size=4),
)
def test_an_alteration_shows_what_was_asked(
    shared: list[tuple[bytes, bytes | None]],
    own: list[tuple[bytes, bytes | None]] | None,
    changes: list[tuple[dict[str, int] | None, dict[str, int] | None]],
) -> None:
    view = offsets.OffsetView(
        offsets.fold_offsets(offsets.OffsetTable(), shared),
        None if own is None else offsets.fold_offsets(offsets.OffsetTable(), own),
    )
    after = written(view, offsets.plan_alteration(view, "a", changes))
    wanted = {offsets.partition_identity(partition): offset for partition, offset in changes}
    for partition, _ in changes:
        assert after.offset("a", partition) == wanted[offsets.partition_identity(partition)]


def written(view: offsets.OffsetView, writes: offsets.OffsetWrites) -> offsets.OffsetView:
    shared, own = view.shared, view.own
    shared = offsets.fold_offsets(shared, writes.shared_tombstones)
    if own is None:
        shared = offsets.fold_offsets(shared, writes.primary)
    else:
        own = offsets.fold_offsets(own, writes.primary)
    return offsets.OffsetView(offsets.fold_offsets(shared, writes.shared_copies), own)
