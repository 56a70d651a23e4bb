"""Laws of the fold of a config topic, whatever records the topic has."""

import json
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, get_args

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.ids import TargetState, TaskId
from headgate.topics import config_records as records
from headgate.topics import config_reducer as reducer
from headgate.topics.config_events import ConfigEvent, RecordRejected
from headgate.topics.config_state import ConfigState
from headgate.topics.rejected import REJECTED_KEPT

Log = Sequence[tuple[int, bytes, bytes | None]]

NAMES = st.sampled_from(["a", "b"])
CONFIGS = st.dictionaries(st.sampled_from("xy"), st.sampled_from(["1", "2", None]), max_size=2)


def record(key: str, value: bytes | None) -> tuple[bytes, bytes | None]:
    return key.encode(), value


RECORDS = st.one_of(
    st.builds(lambda n, c: record(*records.encode_connector(n, c)), NAMES, CONFIGS),
    st.builds(lambda n: record(*records.encode_connector_tombstone(n)), NAMES),
    st.builds(
        lambda n, i, c: record(*records.encode_task(TaskId(n, i), c)),
        NAMES,
        st.integers(0, 2),
        CONFIGS,
    ),
    st.builds(
        lambda n, i, c: record(*records.encode_task(TaskId(n, i), c)),
        NAMES,
        st.integers(0, 1),
        CONFIGS,
    ),
    st.builds(lambda n, i: record(*records.encode_commit(n, i)), NAMES, st.integers(0, 3)),
    st.builds(
        lambda n, t: record(*records.encode_target_state(n, t)), NAMES, st.sampled_from(TargetState)
    ),
    st.builds(lambda n: record(*records.encode_target_state_tombstone(n)), NAMES),
    st.builds(lambda n, i: record(*records.encode_task_count(n, i)), NAMES, st.integers(0, 3)),
    st.builds(
        lambda k: record(*records.encode_session_key(k, "HmacSHA256", 1)),
        st.binary(min_size=1, max_size=3),
    ),
    st.sampled_from(
        [
            record(*records.encode_restart("a", include_tasks=True, only_failed=False)),
            record(*records.encode_logger_level("x", "INFO")),
            (b"commit-a", b'{"tasks":"x"}'),
            (b"commit-b", b"{"),
            (b"unknown", b"{}"),
            (b"task-a-x", b'{"properties":{}}'),
        ]
    ),
)


@st.composite
def logs(draw: st.DrawFn, contents: st.SearchStrategy[list[Any]] | None = None) -> Log:
    """Records with rising offsets and holes between them."""
    found = draw(contents if contents is not None else st.lists(RECORDS, max_size=30))
    offset, log = -1, []
    for key, value in found:
        offset += draw(st.sampled_from([1, 1, 1, 2]))
        log.append((offset, key, value))
    return log


def events(log: Log) -> list[ConfigEvent]:
    return records.decode_all(log)


def replay(log: Log) -> ConfigState:
    return reducer.fold(ConfigState(), events(log))


@given(logs(), st.lists(st.integers(0, 30), max_size=6))
def test_any_batching_gives_the_same_state(log: Log, cuts: list[int]) -> None:
    said = events(log)
    state = ConfigState()
    bounds = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    for start, end in pairwise(bounds):
        state = reducer.fold(state, said[start:end])
    assert state == replay(log)
    one_by_one = ConfigState()
    for event in said:
        one_by_one = reducer.apply(one_by_one, event)
    assert one_by_one == state


@given(logs(), logs())
def test_old_states_stay_as_they_were(first: Log, second: Log) -> None:
    old = replay(first)
    before = deepcopy(plain(old))
    shift = old.offset + len(first) + 1
    moved = [(offset + shift + 30, key, value) for offset, key, value in second]
    reducer.fold(old, events(moved))
    assert plain(old) == before


def plain(state: ConfigState) -> Any:
    """All of `state` in values that share nothing with it."""
    return repr(
        (
            state,
            {
                name: (dict(entry.tasks), dict(entry.deferred), entry.config)
                for name, entry in state.entries.items()
            },
        )
    )


def test_every_event_has_a_handler() -> None:
    assert set(reducer._HANDLERS) == set(get_args(ConfigEvent))


# -- a malformed record costs itself alone --

JUNK = st.sampled_from(
    [
        (b"connector-a", b"{"),
        (b"connector-a", b"[]"),
        (b"task-a-0", b"\xff"),
        (b"task-a", b"{}"),
        (b"target-state-a", b'{"state":1}'),
        (b"tasks-fencing-a", b"NaN"),
        (b"session-key", b'{"key":"?"}'),
        (b"restart-connector-a", None),
        (b"nobody", b"{}"),
        (b"\xff\xfe", b"{}"),
    ]
)


@given(st.lists(st.tuples(RECORDS, st.none() | JUNK), max_size=20))
def test_a_malformed_record_costs_itself_alone(pairs: list[Any]) -> None:
    clean = [(2 * index, *found) for index, (found, _) in enumerate(pairs)]
    dirty = sorted(clean + [(2 * i + 1, *junk) for i, (_, junk) in enumerate(pairs) if junk])
    with_junk, without = replay(dirty), replay(clean)
    assert with_junk.entries == without.entries
    assert with_junk.session_key == without.session_key
    assert with_junk.assignment_offset == without.assignment_offset
    junk_count = len(dirty) - len(clean)
    assert with_junk.rejected_count == without.rejected_count + junk_count


def test_the_last_refusals_are_kept_and_all_are_counted() -> None:
    state = replay([(n, b"nobody-%d" % n, b"{}") for n in range(REJECTED_KEPT + 7)])
    assert state.rejected_count == REJECTED_KEPT + 7
    assert [event.offset for event in state.rejected] == list(range(7, REJECTED_KEPT + 7))


@given(logs(), st.binary(max_size=12), st.none() | st.binary(max_size=40))
def test_no_bytes_are_too_odd(log: Log, key: bytes, value: bytes | None) -> None:
    state = replay(log)
    after = reducer.apply(state, records.decode(state.offset + 30, key, value))
    assert after.offset in (state.offset, state.offset + 31)


# -- a faster parser changes nothing --

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "tasks", "task-count", "state", "state.v2"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        b"connector-a",
        b"task-a-0",
        b"commit-a",
        b"tasks-fencing-a",
        b"target-state-a",
        b"session-key",
    ]
)
WORDS = '{ } [ ] : , "a" "tasks" "properties" 1 -0 1e400 007 NaN null true 1.0 "\\ud800"'
PIECES = st.sampled_from([*WORDS.encode().split(), b"18446744073709551616", b" ", b"\xff"])


@settings(max_examples=300)
@given(
    KEYS, st.builds(lambda value: json.dumps(value).encode(), JSON) | st.lists(PIECES).map(b"".join)
)
@example(b"commit-a", b'{"tasks":18446744073709551617}')
@example(b"commit-a", b'{"tasks":9223372036854775808}')
@example(b"commit-a", b'{"tasks":1} garbage')
@example(b"commit-a", b'{"tasks":1,"tasks":null}')
@example(b"connector-a", b'{"properties":{"x":18446744073709551616}}')
@example(b"connector-a", b'{"properties":{"x":-0.0}}')
@example(b"commit-a", b'{"tasks":1,"x":' + b"1" * 1001 + b"}")
@example(b"commit-a", b'{"tasks":1,"x":' + b"[" * 1010 + b"]" * 1010 + b"}")
@example(b"connector-a", b'{"properties":' + b"[" * 1010 + b"]" * 1010 + b',"properties":{}}')
@example(b"connector-a", b'{"properties":{},"x":1e-99999999999}')
@example(b"connector-a", b'{"properties":{"a":1e-99999999999,"a":"b"}}')
@example(b"commit-a", b'{"tasks":0.' + b"1" * 1001 + b',"tasks":1}')
@example(b"connector-a", b'{"properties":0.' + b"1" * 1001 + b',"properties":{}}')
@example(b"commit-a", b'{"tasks":1e-9999999999,"tasks":1}')
@example(b"commit-a", b'{"' + b"x" * 50_001 + b'":0,"tasks":1}')
@example(b"task-a-0", b'{"properties":{"a":"b"}}')
@example(b"task-a-0", b'{"properties":{"a":"b"}]')
@example(b"task-a-0", b'{"properties":{"a":"b"}}}')
@example(b"task-a-0", b'{"properties":{"a":"b"},"x":{"c":"d"}}')
@example(b"task-a-0", b'{"properties":{"a":1}}')
@example(b"task-a-0", b'{"properties":{"a":1e-9999999999,"a":"x"}}')
@example(b"task-a-0", b'{"properties":{"a":1e-9999999999,"a":null}}')
@example(b"task-a-0", b'{"properties":{"a":1e-9999999999,"a":"x","b":2}}')
@example(b"task-a-0", b'{"properties":{"' + b"x" * 50_001 + b'":"a"}}')
@example(b"task-a-0", b'{"properties":["a","b"]}')
@example(b"task-a-0", b'{"properties":[]}')
@example(b"task-a-0", b'{"properties":0}')
def test_a_faster_parser_changes_nothing(key: bytes, value: bytes) -> None:
    assert records.decode(1, key, value, orjson.loads) == records.decode(1, key, value)


# -- compaction --


@st.composite
def compactions(draw: st.DrawFn, log: Log) -> Log:
    """Logs that a log cleaner may leave of `log`.

    Of each key the last records stay, at least one. A tombstone may go when no record of its key is
    left before it.
    """
    kept: list[tuple[int, bytes, bytes | None]] = []
    for key in dict.fromkeys(key for _, key, _ in log):
        own = [found for found in log if found[1] == key]
        rest = own[draw(st.integers(0, len(own) - 1)) :]
        if len(rest) == 1 and rest[0][2] is None and draw(st.booleans()):
            rest = []
        kept += rest
    return sorted(kept)


@st.composite
def compacted_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    log = draw(logs(st.lists(RECORDS, max_size=40)))
    return log, draw(compactions(log))


@settings(max_examples=300)
@given(compacted_logs())
def test_what_compaction_leaves_alone(pair: tuple[Log, Log]) -> None:
    """Compaction of a log of usable records changes no connector, config, target state, task count
    record or session key."""
    full, compacted = replay(pair[0]), replay(pair[1])
    names = set(full.connector_names())
    assert set(compacted.connector_names()) == names
    assert session(compacted) == session(full)
    for name in ("a", "b"):
        assert compacted.target_state(name) == full.target_state(name)
        if name in names:
            assert compacted.entries[name].config == full.entries[name].config
            assert compacted.entries[name].fencing_count == full.entries[name].fencing_count


def session(state: ConfigState) -> object:
    return state.session_key and state.session_key.key


@settings(max_examples=500)
@given(compacted_logs())
def test_a_compacted_log_ends_equal_inconsistent_or_without_a_commit(pair: tuple[Log, Log]) -> None:
    """After compaction, a connector has the same tasks, is inconsistent, or has no commit. It never
    has another set. Its last commit must have been complete, or missing.

    (If the last commit itself was incomplete, which no leader writes, this does not hold. Without
    the records between, an earlier commit may look complete. A commit that was written twice is
    such a case, and compaction heals it.)
    """
    full, compacted = replay(pair[0]), replay(pair[1])
    for name in full.connector_names():
        before, after = full.entries[name], compacted.entries[name]
        if before.inconsistent and before.task_count is not None:
            continue
        if before.task_count is None:
            assert after.task_count is None
        if after.inconsistent or after.task_count is None:
            assert compacted.tasks(name) == ()
            continue
        assert task_configs(compacted, name) == task_configs(full, name)
        assert after.fencing_pending == before.fencing_pending


def task_configs(state: ConfigState, name: str) -> dict[TaskId, object]:
    return {task: state.task_config(task) for task in state.tasks(name)}


def written_by_a_leader(draw: st.DrawFn) -> Log:
    """Sets of task configs as a leader of a group of our own writes them: the connector's record,
    task configs and commit in one transaction."""
    log: list[tuple[int, bytes, bytes | None]] = []
    for _ in range(draw(st.integers(0, 6))):
        name, config = draw(NAMES), draw(CONFIGS)
        batch = [records.encode_connector(name, config)]
        count = draw(st.integers(0, 3))
        batch += [records.encode_task(TaskId(name, n), draw(CONFIGS)) for n in range(count)]
        batch.append(records.encode_commit(name, count))
        if draw(st.booleans()):
            batch.append(records.encode_task_count(name, count))
        if draw(st.integers(0, 4)) == 0:
            batch.append(records.encode_connector_tombstone(name))
        for key, value in batch:
            log.append((len(log) + 1, key.encode(), value))
    return log


@settings(max_examples=300)
@given(st.data())
def test_our_own_way_of_writing_survives_compaction(data: st.DataObject) -> None:
    """If the connector's record is written again before task configs and commit, compaction changes
    neither tasks nor the need for fencing."""
    log = data.draw(st.composite(written_by_a_leader)())
    full, compacted = replay(log), replay(data.draw(compactions(log)))
    assert set(compacted.connector_names()) == set(full.connector_names())
    for name in full.connector_names():
        assert task_configs(compacted, name) == task_configs(full, name)
        assert compacted.entries[name].fencing_pending == full.entries[name].fencing_pending
        assert not compacted.entries[name].inconsistent


def test_rejections_never_advance_twice() -> None:
    refused = RecordRejected(4, "commit-a", "not JSON", advances=False)
    state = reducer.apply(ConfigState(), refused)
    assert state.offset == -1
    assert state.rejected == (refused,)
