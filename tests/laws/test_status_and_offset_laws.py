"""Laws of the fold of every status topic and every offsets topic."""

from copy import deepcopy
from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.herder.log_records import OneTopic, log_records

from headgate.ids import State, TaskId
from headgate.ports import LogRecord
from headgate.topics import offsets, status
from headgate.topics.status import Status, StatusView, TopicActivity, fold_statuses
from headgate_runtime.tasks.offsets import SourceOffsets

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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["RUNNING", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["state", "generation", "trace", "topic", "task", "name", "connector"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


@given(JSON)
def test_no_json_is_too_odd_for_a_status(value: object) -> None:
    for key in ("status-task-a-0", "status-connector-a", "status-topic-t:connector-a"):
        event = status.decode_status(key, offsets.dumps(value), place=(2, 7))
        view = fold_statuses(StatusView(), [event])
        assert view.rejected == ((event,) if view.rejected_count else ())
        if isinstance(event, status.StatusRejected):
            assert (view.rejected_count, event.partition, event.offset) == (1, 2, 7)


@given(JSON | st.binary(max_size=20), JSON | st.binary(max_size=20) | st.just(b"{}"))
def test_no_record_is_too_odd_for_an_offsets_topic(key: object, value: object) -> None:
    found = [each if isinstance(each, bytes) else offsets.dumps(each) for each in (key, value)]
    record = LogRecord(1, found[0], found[1], place=(2, 7))
    table = offsets.fold_offsets(offsets.OffsetTable(), [record])
    refused = offsets.rejection(record)
    assert table.rejected == ((refused,) if refused is not None else ())
    assert bool(table.connectors) == (offsets.decode_key(found[0]) is not None)


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
        offsets.OffsetTable(), log_records([(offsets.encode_key("c", partition), b'{"n":1}')])
    )
    assert offsets.OffsetView(table).offset("c", other) == {"n": 1}


SMALL = st.sampled_from([{}, {"p": 1}, {"p": 1, "q": 2}, {"q": 2, "p": 1}, None])
OWN = offsets.encode_key("a", {"p": 1, "q": 2})
SPELLINGS = st.sampled_from([OWN, b'["a",{"q":2,"p":1}]', b'["a",{"q": 2,"p":1}]'])
UNUSABLE = st.sampled_from([b'["a"]', b'["a",{"p":[1]}]', b'["a", {"p":[1]}]'])
KEYS = st.builds(
    lambda name, partition: offsets.dumps([name, partition]), st.sampled_from("ab"), SMALL
)
OFFSET_RECORDS = st.builds(
    lambda key, value, timestamp_ms: LogRecord(0, key, value, timestamp_ms),
    KEYS | SPELLINGS | UNUSABLE,
    st.none() | st.sampled_from([b'{"n":1}', b'{"n":2}', b'{"n":3}', b"{"]),
    st.integers(0, 3),
)


@given(st.lists(OFFSET_RECORDS, max_size=20), st.lists(st.integers(0, 20), max_size=5))
def test_offsets_fold_alike_in_any_batching(found: list[LogRecord], cuts: list[int]) -> None:
    table = offsets.OffsetTable()
    seen = [(table, repr(table))]
    for start, end in pairwise([0, *sorted(min(cut, len(found)) for cut in cuts), len(found)]):
        table = offsets.fold_offsets(table, found[start:end])
        seen.append((table, repr(table)))
    assert table == offsets.fold_offsets(offsets.OffsetTable(), found)
    assert all(repr(old) == before for old, before in seen)


@given(st.lists(OFFSET_RECORDS, max_size=12), st.randoms(use_true_random=False))
@example(
    [LogRecord(0, b'["a",{"q":2,"p":1}]', b"{}"), LogRecord(0, b'["a",{"q": 2,"p":1}]', b"null")],
    Random(0),
)
def test_how_keys_are_mixed_decides_nothing(found: list[LogRecord], random: Random) -> None:
    """Records of one key come in order. Keys in different partitions of a topic come in any
    order."""
    of_key: dict[bytes | None, list[LogRecord]] = {}
    for record in found:
        of_key.setdefault(record.key, []).append(record)
    order = [record.key for record in found]
    random.shuffle(order)
    mixed = [of_key[key].pop(0) for key in order]
    assert answers(mixed) == answers(found)
    one_by_one = sorted(found, key=lambda record: record.key or b"")
    assert answers(one_by_one) == answers(found)


@given(st.lists(OFFSET_RECORDS, max_size=12))
def test_compaction_changes_no_offset(found: list[LogRecord]) -> None:
    """That holds even for the compaction that removes tombstones."""
    last = {record.key: record for record in found}
    kept = [record for record in found if last[record.key] is record and record.value is not None]
    assert answers(kept) == answers(found)


@given(st.lists(OFFSET_RECORDS, max_size=12))
def test_the_latest_of_the_keys_of_a_partition_counts(found: list[LogRecord]) -> None:
    """If two are equally late, the key in our own order counts."""
    identity = offsets.partition_identity({"p": 1, "q": 2})
    membership: dict[bytes | None, LogRecord] = {}
    for record in found:
        key = offsets.decode_key(record.key)
        if key == offsets.OffsetKey("a", {"p": 1, "q": 2}):
            membership[record.key] = record
    latest = [record for record in membership.values() if record.value is not None]
    table = offsets.fold_offsets(offsets.OffsetTable(), found)
    stored = table.connectors.get("a", {}).get(identity)
    assert (stored is None) == (not latest)
    if stored is not None:
        newest = max(record.timestamp_ms for record in latest)
        keys = [record.key for record in latest if record.timestamp_ms == newest]
        assert stored.newest_key in keys
        assert OWN not in keys or stored.newest_key == OWN
        assert stored.newest.value == membership[stored.newest_key].value


def answers(found: list[LogRecord]) -> list[object]:
    """Return what users see. Assert that a task gets the same."""
    view = offsets.OffsetView(offsets.fold_offsets(offsets.OffsetTable(), found))
    reader = SourceOffsets(OneTopic(found), "a")
    for line in view.partitions("a"):
        if line.problem is None:
            assert reader.offset(line.partition) == line.offset
        else:
            with pytest.raises(offsets.OffsetFormatError):
                reader.offset(line.partition)
    for partition in ({}, {"p": 1}, {"p": 1, "q": 2}):
        if all(line.partition != partition for line in view.partitions("a")):
            assert reader.offset(partition) is None
    return [*view.partitions("a"), *view.partitions("b")]


@given(st.lists(OFFSET_RECORDS, max_size=12), st.none() | st.lists(OFFSET_RECORDS, max_size=12))
def test_a_reset_leaves_nothing(shared: list[LogRecord], own: list[LogRecord] | None) -> None:
    view = offsets.OffsetView(
        offsets.fold_offsets(offsets.OffsetTable(), shared),
        None if own is None else offsets.fold_offsets(offsets.OffsetTable(), own),
    )
    writes = offsets.plan_reset(view, "a")
    keys = [key for key, _ in (*writes.shared_tombstones, *writes.primary)]
    assert all(offsets.decode_key(key) is not None for key in keys)
    after = written(view, writes)
    assert after.partitions("a") == ()
    assert after.offset("a", None) is None
    assert after.partitions("b") == view.partitions("b")


@given(
    st.lists(OFFSET_RECORDS, max_size=12),
    st.none() | st.lists(OFFSET_RECORDS, max_size=12),
    st.lists(st.tuples(SMALL, st.none() | st.just({"n": 9})), max_size=4),
)
def test_an_alteration_shows_what_was_asked(
    shared: list[LogRecord],
    own: list[LogRecord] | None,
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
    shared = offsets.fold_offsets(shared, log_records(writes.shared_tombstones))
    if own is None:
        shared = offsets.fold_offsets(shared, log_records(writes.primary))
    else:
        own = offsets.fold_offsets(own, log_records(writes.primary))
    return offsets.OffsetView(offsets.fold_offsets(shared, log_records(writes.shared_copies)), own)
