"""`headgate observe` shows clusters from topics that real Java workers wrote, and clusters in which
something is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headgate.assignment.model import MemberAssignment
from headgate.ids import State, TargetState, TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Metadata
from headgate.ports import LogRecord
from headgate.topics.config_records import (
    decode,
    encode_commit,
    encode_connector,
    encode_target_state,
    encode_task,
    encode_task_count,
)
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.offsets import OffsetTable, fold_offsets
from headgate.topics.status import Status, StatusRejected, StatusView, fold_statuses
from headgate_kafka.group.describe import DescribedGroup, DescribedMember
from headgate_runtime.observe.show import render
from headgate_runtime.observe.view import (
    Look,
    SinkProgress,
    SourceOffset,
    describe,
)

TOPICS = {"config": "connect-configs", "status": "connect-status", "offset": "connect-offsets"}
ALL = ("s", (TaskId("s", 0), TaskId("s", 1)))


def member(
    number: int,
    reported: tuple[tuple[str, ...], tuple[TaskId, ...]] = ((), ()),
    change: MemberAssignment | None = None,
    *,
    offset: int = 4,
    delay_ms: int = 0,
    protocol: str = "sessioned",
    topic: str = "",
) -> DescribedMember:
    codec, url = CODECS[protocol], f"http://w{number}:8083/"
    metadata = Metadata(url, offset, *reported, config_topic=topic)
    assignment = Assignment(
        AssignmentError.NONE,
        "m1",
        "http://w1:8083/",
        4,
        change or MemberAssignment(),
        delay_ms,
    )
    return DescribedMember(
        f"m{number}",
        f"connect-w{number}",
        f"/10.0.0.{number}",
        codec.encode_metadata(metadata),
        codec.encode_assignment(assignment),
    )


def read(state: ConfigState, *records: tuple[str, bytes | None]) -> ConfigState:
    """`state` after `records` more of the config topic."""
    start = max(state.offset, 0)
    return fold(state, [decode(start + n, k.encode(), v) for n, (k, v) in enumerate(records)])


def configured(target: TargetState = TargetState.STARTED) -> ConfigState:
    """Connector `s` with two tasks."""
    state = read(
        ConfigState(),
        encode_connector("s", {"connector.class": "X", "name": "s"}),
        encode_task(TaskId("s", 0), {}),
        encode_task(TaskId("s", 1), {}),
        encode_commit("s", 2),
    )
    return state if target is TargetState.STARTED else read(state, encode_target_state("s", target))


def running(worker: str = "w1:8083", state: State = State.RUNNING) -> StatusView:
    status = Status(state, worker, 3)
    return StatusView({"s": status}, {"s": {0: status, 1: status}})


def described(state: str, protocol: str, *members: DescribedMember) -> DescribedGroup:
    return DescribedGroup("g", state, "connect", protocol, members, "h:9092")


def look(*members: DescribedMember, **changes: Any) -> Look:
    protocol = changes.pop("protocol", "sessioned")
    group = described(changes.pop("group_state", "Stable"), protocol, *members)
    return replace(Look(group, TOPICS, configured(), running()), **changes)


def garbage(count: int) -> list[StatusRejected]:
    return [StatusRejected(f"k{n}", "a key of no known kind", 3, n) for n in range(count)]


HEALTHY = look(member(1, ALL))


def test_a_member_that_names_the_topic_that_is_looked_at_is_in_order() -> None:
    mine = member(1, ALL, protocol="headgate", topic="'connect-configs' (id x)")
    view = describe(look(mine, protocol="headgate"))
    assert view["findings"] == []
    assert view["group"]["members"][0]["config_topic"] == "'connect-configs' (id x)"


def test_who_names_another_topic_owns_nothing_here() -> None:
    mine = member(1, ALL, protocol="headgate", topic="'connect-configs' (id x)")
    other = member(2, ALL, protocol="headgate", topic="'other' (id y)")
    view = describe(look(mine, other, protocol="headgate"))
    assert view["connectors"]["s"]["owner"] == "w1:8083"
    (finding,) = view["findings"]
    assert "w2:8083 reads config topic 'other' (id y)" in finding


def printed(view: Any) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(render(view))
    return captured.get()


def test_a_healthy_cluster_has_no_findings() -> None:
    view = describe(HEALTHY)
    assert view["findings"] == []
    assert view["group"]["members"][0]["config_topic"] is None, "Java's do not say it"
    assert view["group"]["leader"] == "w1:8083"
    assert view["connectors"]["s"]["owner"] == "w1:8083"
    assert [task["owner"] for task in view["connectors"]["s"]["tasks"]] == ["w1:8083"] * 2


def test_what_a_member_owns_is_what_it_reported_and_what_the_round_changed() -> None:
    given = MemberAssignment(assigned_tasks=(TaskId("s", 1),))
    taken = MemberAssignment(revoked_tasks=(TaskId("s", 1),))
    view = describe(look(member(1, ALL, taken), member(2, change=given)))
    assert [m["tasks"] for m in view["group"]["members"]] == [["s-0"], ["s-1"]]


def test_under_version_0_an_assignment_is_the_whole_of_it() -> None:
    everything = MemberAssignment(assigned_connectors=("s",), assigned_tasks=ALL[1])
    view = describe(look(member(1, change=everything, protocol="default"), protocol="default"))
    assert view["group"]["members"][0]["tasks"] == ["s-0", "s-1"]
    assert view["findings"] == []


WRONG = {
    "another cluster under the same group id": (
        look(member(1, ALL, offset=4_000)),
        "member w1:8083 has read its config topic to offset 4000, but connect-configs ends at 4",
    ),
    "another cluster with a config topic of the same length": (
        look(member(1, ALL, protocol="headgate", topic="'other' (id x)"), protocol="headgate"),
        "member w1:8083 reads config topic 'other' (id x), and not connect-configs",
    ),
    "another cluster whose config topic is empty": (
        look(member(1, ALL), member(2, offset=-1)),
        "member w2:8083 has read nothing of its config topic, but connect-configs has 1 connectors",
    ),
    "rounds that do not end": (
        look(member(1), group_state="PreparingRebalance"),
        "group g is PreparingRebalance: its members did not tell what they have read. If it stays",
    ),
    "members that have not been given their work": (
        look(member(1), group_state="CompletingRebalance"),
        "group g is CompletingRebalance: its members did not tell what they have read",
    ),
    "nobody owns a task": (
        look(member(1, (("s",), (TaskId("s", 0),)))),
        "s-1 is owned by nobody",
    ),
    "two own a connector": (
        look(member(1, ALL), member(2, (("s",), ()))),
        "s is owned by 2 workers: w1:8083, w2:8083",
    ),
    "a failed task": (
        look(
            member(1, ALL),
            statuses=StatusView(
                running().connectors,
                {"s": {0: Status(State.FAILED, "w1:8083", 3, "org.x.Oops: disk full\n\tat ...")}},
            ),
        ),
        "s-0 FAILED on w1:8083: org.x.Oops: disk full",
    ),
    "a target state that nobody follows": (
        look(member(1, ALL, offset=5), state=configured(TargetState.PAUSED)),
        "s is RUNNING on w1:8083, its target state is PAUSED",
    ),
    "a status of a former owner": (
        look(member(1, ALL), statuses=running("w9:8083")),
        "s-1 is owned by w1:8083, its status (RUNNING) is of w9:8083 from generation 3",
    ),
    "an incomplete commit": (
        look(member(1, ALL), state=read(configured(), encode_commit("s", 3))),
        "s is inconsistent: the last commit names 3 tasks, tasks 2 without a config",
    ),
    "a commit of more tasks than anybody has": (
        look(member(1, ALL), state=read(configured(), encode_commit("s", 2**31 - 1))),
        "s is inconsistent: the last commit names 2147483647 tasks, tasks 2-2147483646 without",
    ),
    "a task count record that nobody can act upon": (
        look(member(1, ALL), state=read(configured(), encode_task_count("s", 2**31 - 1))),
        "config topic connect-configs, partition 0, offset 4, key 'tasks-fencing-s': 'task-count' "
        "is 2147483647, expected 1000000 at the most",
    ),
    "statuses of a deleted connector": (
        look(member(1), state=ConfigState(offset=5)),
        "s has statuses and is not configured",
    ),
    "a status of a task that is gone": (
        look(
            member(1, ALL),
            statuses=replace(running(), tasks={"s": {7: Status(State.UNASSIGNED, "w1:8083", 1)}}),
        ),
        "s-7 has a status and is no task of s",
    ),
    "garbage in the config topic": (
        look(
            member(1, ALL, offset=9),
            state=read(configured(), ("commit-s", b"{}")),
        ),
        "config topic connect-configs, partition 0, offset 4, key 'commit-s': 'tasks' is null",
    ),
    "garbage in the status topic": (
        look(member(1, ALL), statuses=fold_statuses(running(), garbage(12))),
        "12 records of status topic connect-status cannot be used and are passed over",
    ),
    "what is wrong with them": (
        look(member(1, ALL), statuses=fold_statuses(running(), garbage(12))),
        "status topic connect-status, partition 3, offset 9, key 'k9': a key of no known kind",
    ),
    "more than are named": (
        look(member(1, ALL), statuses=fold_statuses(running(), garbage(12))),
        "status topic connect-status: and 2 more, see rejected in --json",
    ),
    "garbage in an offsets topic": (
        look(
            member(1, ALL),
            offset_tables={"o": fold_offsets(OffsetTable(), [LogRecord(8, b"x", b"", 0, (2, 7))])},
        ),
        "offsets topic o, partition 2, offset 7, key 'x': the key is not JSON at byte 0",
    ),
    "bytes of a member that nobody can read": (
        look(DescribedMember("m1", "c1", "/h", b"\xff\xff", b"")),
        "member c1: ",
    ),
    "an offset that cannot be read": (
        look(member(1, ALL), source_offsets={"s": [SourceOffset({"f": 1}, None, "not JSON")]}),
        "s: the offset of {'f': 1} is there: not JSON",
    ),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_what_does_not_fit_together_is_said(case: str) -> None:
    seen, expected = WRONG[case]
    findings = describe(seen)["findings"]
    assert any(finding.startswith(expected) for finding in findings), findings


@pytest.mark.parametrize(
    ("there", "count", "missing"),
    [
        ([], 1, "tasks 0"),
        ([], 3_000_000, "tasks 0-2999999"),
        ([0, 2, 3, 7, 9], 8, "tasks 1, 4-6"),
        ([1], 2**31 - 1, "tasks 0, 2-2147483646"),
        (range(0, 40, 2), 40, "tasks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 10 more runs"),
        ([0, 1], 2, "some"),
    ],
)
def test_missing_tasks_are_told_in_runs(there: Sequence[int], count: int, missing: str) -> None:
    tasks = [encode_task(TaskId("s", n), {}) for n in there]
    made = encode_connector("s", {"connector.class": "X"}), *tasks
    # Higher numbers than are committed are there too, as compaction leaves them.
    state = read(ConfigState(), *made, encode_commit("s", 0), encode_commit("s", count))
    (finding,) = (one for one in describe(look(state=state))["findings"] if "inconsistent" in one)
    assert f"names {count} tasks, {missing} without a config" in finding


def test_what_cannot_be_used_is_shown_with_its_place() -> None:
    table = fold_offsets(OffsetTable(), [LogRecord(8, b'["s",{}]', b"7", 0, (2, 7))])
    view = describe(
        look(
            member(1, ALL),
            state=read(configured(), ("commit-s" * 100, b"{}")),
            statuses=fold_statuses(running(), garbage(101)),
            offset_tables={"connect-offsets": table, "own": table, "empty": OffsetTable()},
        )
    )
    rejected = {
        "partition": 2,
        "offset": 7,
        "key": '["s",{}]',
        "reason": "the source offset is 7, expected an object",
    }
    shown = {"rejected_count": 1, "rejected": [rejected]}
    assert view["offset"] == {"topic": "connect-offsets", **shown}
    assert view["own_offsets"] == [{"topic": "own", **shown}]
    assert view["status"]["rejected_count"] == 101
    assert len(view["status"]["rejected"]) == 100
    (config,) = view["config"]["rejected"]
    assert (config["partition"], config["offset"], len(config["key"])) == (0, 4, 120)


def test_lost_work_that_waits_for_its_worker_is_no_finding() -> None:
    waiting = look(member(1, (("s",), (TaskId("s", 0),)), delay_ms=60_000))
    assert describe(waiting)["findings"] == []
    (finding,) = describe(look(member(1), group_state="PreparingRebalance"))["findings"]
    assert "compare their config.storage.topic" in finding
    assert "owned by nobody" not in finding


def test_a_member_of_a_new_cluster_has_read_nothing_and_need_not() -> None:
    new = look(member(1, offset=-1), state=ConfigState(), statuses=StatusView())
    assert describe(new)["findings"] == []


COUNTED = read(ConfigState(), encode_task_count("gone", 1))
"""Of a cluster in which exactly-once was on once."""


def committed(state: ConfigState, *records: tuple[str, bytes | None]) -> ConfigState:
    """Connector `s` with new configs of two tasks, after `state`; then `records`."""
    tasks = [encode_task(TaskId("s", n), {}) for n in (0, 1)]
    connector = encode_connector("s", {"connector.class": "X"})
    return read(state, connector, *tasks, encode_commit("s", 2), *records)


GIVEN_UP = running(state=State.UNASSIGNED)


@pytest.mark.parametrize(
    ("waits", "state", "changes"),
    [
        ("may wait", committed(COUNTED), {"statuses": GIVEN_UP}),
        ("may wait", committed(COUNTED), {"statuses": StatusView()}),
        ("may wait", committed(COUNTED), {"statuses": running("w9:8083")}),
        ("may wait", committed(committed(COUNTED)), {"statuses": GIVEN_UP}),
        ("waits", committed(ConfigState()), {"statuses": GIVEN_UP, "exactly_once": True}),
        (None, committed(ConfigState()), {"statuses": GIVEN_UP}),
        (None, committed(COUNTED), {"statuses": GIVEN_UP, "exactly_once": False}),
        (None, committed(COUNTED), {}),
        (None, committed(COUNTED), {"statuses": running(state=State.FAILED)}),
        (None, committed(COUNTED, encode_task_count("s", 2)), {"statuses": GIVEN_UP}),
        (
            None,
            committed(COUNTED, encode_target_state("s", TargetState.PAUSED)),
            {"statuses": GIVEN_UP},
        ),
        (
            None,
            committed(COUNTED),
            {"statuses": GIVEN_UP, "sink_progress": {"s": SinkProgress("g", {}, {})}},
        ),
    ],
)
def test_tasks_that_wait_for_older_producers_are_told(
    waits: str | None, state: ConfigState, changes: dict[str, Any]
) -> None:
    """And those of at-least-once clusters, of which no count is ever recorded, are not."""
    view = describe(look(member(1, ALL), state=state, **changes))
    fencing = view["connectors"]["s"]["fencing"]
    assert fencing["waiting"] is (waits is not None)
    told = [each for each in view["findings"] if "older producers are shut out" in each]
    assert [each.split(" until ")[0] for each in told] == ([f"s {waits}"] if waits else [])
    shown = printed(view)
    assert ("pending" in shown) == (waits is not None)


def test_fencing_as_the_log_has_it() -> None:
    """A round that follows another one, from the commit to the count."""
    first = committed(ConfigState(), encode_task_count("s", 2))
    for state, expected, shown in (
        (first, {"pending": False, "count": 2, "waiting": False}, "2 recorded"),
        (committed(first), {"pending": True, "count": 2, "waiting": True}, "2 recorded, pending"),
    ):
        view = describe(look(member(1, ALL, offset=0), state=state, statuses=GIVEN_UP))
        assert view["connectors"]["s"]["fencing"] == expected
        assert shown in printed(view)
    unowned = describe(look(member(1, offset=0), state=committed(first), statuses=GIVEN_UP))
    assert not unowned["connectors"]["s"]["fencing"]["waiting"]


def test_the_generation_is_that_of_the_newest_status() -> None:
    """Brokers do not tell the group's own, and the words say so."""
    view = describe(look(member(1, ALL), statuses=running()))
    assert view["group"]["generation"] == 3
    assert "statuses up to generation 3" in printed(view)
    assert describe(look(member(1), statuses=StatusView()))["group"]["generation"] is None


OLD = Status(State.UNASSIGNED, "w1:8083", 50)
"""Of a group that was there before, and counted further."""


@pytest.mark.parametrize(
    "older",
    [
        StatusView({"gone": OLD}, {"gone": {0: OLD}}),
        StatusView({}, {"s": {7: OLD}}),
        StatusView({}, {"s": {1: replace(OLD, worker_id="w9:8083")}}),
    ],
    ids=["of a deleted connector", "of a task that is gone", "of a former owner"],
)
def test_statuses_of_an_older_group_do_not_count(older: StatusView) -> None:
    now, gone = running(), older.tasks.get("gone", {})
    tasks = {"s": {**now.tasks["s"], **older.tasks.get("s", {})}, "gone": gone}
    statuses = StatusView({**now.connectors, **older.connectors}, tasks)
    assert describe(look(member(1, ALL), statuses=statuses))["group"]["generation"] == 3


def test_where_nobody_owns_anything_the_statuses_of_what_there_is_count() -> None:
    old = StatusView({**running("w9:8083").connectors, "gone": OLD}, {"gone": {0: OLD}})
    view = describe(look(group_state="Empty", statuses=old))
    assert view["group"]["generation"] == 3


def test_a_sink_shows_its_lag() -> None:
    ends = {("t", 0): 10, ("t", 1): 4}
    progress = SinkProgress("connect-s", {("t", 0): 7}, ends)
    shown = describe(replace(HEALTHY, sink_progress={"s": progress}))["connectors"]["s"]
    assert shown["type"] == "sink"
    assert shown["progress"]["lag"] == 7
    assert shown["progress"]["partitions"][1]["committed"] is None


def test_a_person_reads_all_of_it() -> None:
    seen = look(
        member(1, ALL),
        member(2, delay_ms=1_500),
        source_offsets={"s": [SourceOffset({"filename": "a"}, {"position": 5})]},
        statuses=running(state=State.FAILED),
    )
    text = printed(describe(seen))
    for expected in ("w1:8083 (leader)", "s-0", "FAILED", "1.5 s", '{"position": 5}', "Look at:"):
        assert expected in text


@pytest.mark.parametrize(
    ("state", "finding"),
    [
        ("Dead", "the brokers know no group g: is group.id the one that workers have?"),
        ("Empty", "group g has no members: no worker with this group.id runs"),
    ],
)
def test_a_group_without_members_is_told_where_there_is_work(state: str, finding: str) -> None:
    config = read(ConfigState(), encode_connector("a", {"connector.class": "C"}))
    view = describe(Look(described(state, ""), TOPICS, config, StatusView()))
    assert finding in view["findings"]


def test_an_empty_group_is_shown_too() -> None:
    empty = Look(described("Empty", ""), TOPICS, ConfigState(), StatusView())
    view = describe(empty)
    assert view["group"]["leader"] is None
    assert view["findings"] == []
