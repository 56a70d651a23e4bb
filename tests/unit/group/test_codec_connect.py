"""The bytes of Connect's own protocols. `tests/differential` compares them with Java's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Metadata
from headgate.membership.codec_connect import ConnectCodec
from headgate.wire import WireError

V0, V1, V2 = CODECS["default"], CODECS["compatible"], CODECS["sessioned"]
A0, A1 = TaskId("A", 0), TaskId("A", 1)
W1_URL = "http://W1:8083/"

# Leader W1, nothing assigned, connector A and both its tasks revoked, no delay.
REVOKES = bytes.fromhex(
    "0002 0000 0002 5731 000f 687474703a2f2f57313a383038332f 0000000000000000 00000000"
    "00000001 0001 41 00000003 ffffffff 00000000 00000001 00000000"
)
NEW_MEMBER = bytes.fromhex("0002 000f 687474703a2f2f57323a383038332f 0000000000000000 ffffffff")
HEAD = bytes.fromhex("0000 0002 5731 0000 000000000000002a")
"""Of an assignment from the error on: leader W1 without a url, offset 42."""

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.integers(0, 2**31 - 1)
connectors = st.lists(names, max_size=30, unique=True).map(tuple)
tasks = st.lists(st.builds(TaskId, names, numbers), max_size=9).map(tuple)
assignments = st.builds(
    Assignment,
    error=st.sampled_from(AssignmentError),
    leader=names,
    leader_url=names,
    config_offset=st.integers(-1, 2**62),
    change=st.builds(MemberAssignment, connectors, tasks, connectors, tasks),
    delay_ms=numbers,
)


def as_sets(change: MemberAssignment) -> list[list[object]]:
    works = (
        *(change.assigned_connectors, change.assigned_tasks),
        *(change.revoked_connectors, change.revoked_tasks),
    )
    return [sorted(work, key=repr) for work in works]


def test_they_are_offered_after_ours_best_first() -> None:
    assert list(CODECS) == ["headgate", "sessioned", "compatible", "default"]


def test_an_assignment_that_revokes() -> None:
    change = MemberAssignment(revoked_connectors=("A",), revoked_tasks=(A0, A1))
    assignment = Assignment(AssignmentError.NONE, "W1", W1_URL, 0, change)
    assert V2.encode_assignment(assignment) == REVOKES
    assert V2.decode_assignment(REVOKES) == assignment
    assert V1.encode_assignment(assignment) == b"\0\1" + REVOKES[2:]
    # Version 0 ends with what is assigned.
    assert V0.encode_assignment(assignment) == b"\0\0" + REVOKES[2:37]


def test_metadata_of_a_member_without_an_assignment() -> None:
    metadata = Metadata("http://W2:8083/", 0)
    assert V2.encode_metadata(metadata) == NEW_MEMBER
    assert V2.decode_metadata(NEW_MEMBER) == metadata
    assert V0.encode_metadata(metadata) == b"\0\0" + NEW_MEMBER[2:-4]


def test_metadata_after_an_assignment_is_never_null() -> None:
    nothing = Assignment(AssignmentError.NONE, "W1", W1_URL, 0)
    data = V1.encode_metadata(Metadata("http://W2:8083/", 0, last=nothing))
    length = 2 + 2 + 4 + 17 + 8 + 4 + 4 + 4
    assert data == (
        b"\0\1" + NEW_MEMBER[2:-4] + length.to_bytes(4, "big") + b"\0\1" + REVOKES[2:37] + bytes(8)
    )


def test_metadata_holds_what_runs_and_the_rest_of_the_last_assignment() -> None:
    last = Assignment(
        AssignmentError.NONE, "W1", W1_URL, 7, MemberAssignment(("new",), (), ("A",), (A0,)), 99
    )
    held = Metadata("u", 8, connectors=("x",), tasks=(A1,), last=last)
    read = V2.decode_metadata(V2.encode_metadata(held))
    assert (read.connectors, read.tasks, read.last_delay_ms) == (("x",), (A1,), 99)
    assert read.last is not None and read.last.config_offset == 7
    assert read.last.change == MemberAssignment(("x",), (A1,), ("A",), (A0,))


def test_work_that_is_still_stopping_is_reported_after_the_assignment_was_given_up() -> None:
    read = V2.decode_metadata(V2.encode_metadata(Metadata("u", 8, ("x",), (A0,))))
    assert (read.connectors, read.tasks) == (("x",), (A0,))


@given(assignments, st.sampled_from([V1, V2]))
def test_assignments_keep_all_but_the_order_of_connectors(
    assignment: Assignment, codec: ConnectCodec
) -> None:
    read = codec.decode_assignment(codec.encode_assignment(assignment))
    assert as_sets(read.change) == as_sets(assignment.change)
    assert read.change.revoked_connectors == assignment.change.revoked_connectors
    assert (read.leader, read.leader_url) == (assignment.leader, assignment.leader_url)
    assert (read.error, read.config_offset, read.delay_ms) == (
        *(assignment.error, assignment.config_offset),
        assignment.delay_ms,
    )


def test_connectors_are_written_in_the_order_of_a_java_set() -> None:
    names = tuple(f"connector-{n}" for n in range(13))
    assignment = Assignment(AssignmentError.NONE, "", "", 0, MemberAssignment(names, (A0,)))
    read = V2.decode_assignment(V2.encode_assignment(assignment)).change.assigned_connectors
    assert read == tuple(f"connector-{n}" for n in (10, 12, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99, 2**15 - 1])
def test_any_version_is_read_as_version_1(version: int) -> None:
    data = version.to_bytes(2, "big") + REVOKES[2:]
    assert V0.decode_assignment(data) == V2.decode_assignment(REVOKES)
    data = version.to_bytes(2, "big") + NEW_MEMBER[2:]
    assert V1.decode_metadata(data) == V2.decode_metadata(NEW_MEMBER)


@pytest.mark.parametrize(
    ("tail", "delay_ms"),
    [
        ("", 0),  # nothing assigned
        ("ffffffff", 0),  # null
        ("00000000", 0),
        ("00000000 ffffffff", 0),
        ("00000000 00000000", 0),
        ("00000000 00000000 00000005", 5),
        ("00000000 00000000 00000005 abcdef", 5),
    ],
)
def test_fields_may_be_missing_at_the_end_or_null_and_others_may_follow(
    tail: str, delay_ms: int
) -> None:
    read = V2.decode_assignment(b"\0\2" + HEAD + bytes.fromhex(tail))
    assert read == Assignment(AssignmentError.NONE, "W1", "", 42, delay_ms=delay_ms)


@pytest.mark.parametrize("tail", ["", "ffffffff", "ffffffff 00"])
def test_metadata_may_end_before_the_current_assignment(tail: str) -> None:
    assert V2.decode_metadata(NEW_MEMBER[:-4] + bytes.fromhex(tail)) == Metadata(
        "http://W2:8083/", 0
    )


def test_names_may_come_again_and_numbers_in_any_order() -> None:
    work = "00000003 0001 41 00000002 00000001 ffffffff 0001 42 00000000 0001 41 00000001 00000000"
    change = V2.decode_assignment(b"\0\2" + HEAD + bytes.fromhex(work)).change
    assert (change.assigned_connectors, change.assigned_tasks) == (("A",), (A1, A0))


@pytest.mark.parametrize("error", ["0001", "0002", "ffff"])
def test_any_error_is_a_failure(error: str) -> None:
    read = V2.decode_assignment(b"\0\2" + bytes.fromhex(error) + HEAD[2:])
    assert read.error is AssignmentError.CONFIG_MISMATCH


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xff" + REVOKES[2:], "version -1, expected 0 or higher"),
        (b"", "version needs 2 bytes"),
        (b"\0\2", "error needs 2 bytes"),
        (b"\0\2\0\0\xff\xff", "leader has a length of -1"),
        (b"\0\2\0\0\0\5abc", "leader needs 5 bytes at byte 6, and there are 3 more"),
        (REVOKES[:-1], "delay needs 4 bytes"),
        (b"\0\2" + HEAD + b"\x7f\xff\xff\xff", "assigned goes on at byte 22, and there are 22"),
        (b"\0\2" + HEAD + b"\0\0\0\1\0\1A\xff\xff\xff\xff", "assigned has a null at byte 22"),
        (b"\0\2" + HEAD + b"\0\0\0\1\xff\xff\0\0\0\0\0", "assigned has a null at byte 22"),
        (
            b"\0\2" + HEAD + b"\0\0\0\1\0\1A\0\0\0\1",
            "assigned goes on at byte 33, and there are 29",
        ),
        (
            b"\0\2" + HEAD + b"\0\0\0\1\0\1A\0\0\0\1\0",
            "assigned goes on at byte 33, and there are 30",
        ),
    ],
)
def test_what_is_no_assignment_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        V2.decode_assignment(data)


def test_a_damaged_current_assignment_is_refused() -> None:
    with pytest.raises(WireError, match="current assignment needs 9 bytes"):
        V2.decode_metadata(NEW_MEMBER[:-4] + bytes.fromhex("00000009 0002"))
    with pytest.raises(WireError, match="error needs 2 bytes"):
        V2.decode_metadata(NEW_MEMBER[:-4] + bytes.fromhex("00000002 0002"))


def test_a_name_that_no_string_holds_is_refused() -> None:
    with pytest.raises(WireError, match="takes 32768 bytes, 32767 is the most"):
        V2.encode_metadata(Metadata("x" * 2**15, 0))
