"""The bytes of protocol `headgate`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Metadata
from headgate.wire import WireError

CODEC = CODECS["headgate"]
names = st.text(max_size=4)
works = st.lists(st.builds(TaskId, names, st.integers(0, 2**31 - 1)), max_size=5).map(tuple)
connectors = st.lists(names, max_size=3).map(tuple)


@given(
    st.builds(
        Metadata,
        url=names,
        config_offset=st.integers(-1, 2**40),
        connectors=connectors,
        tasks=works,
        last_delay_ms=st.integers(0, 10**6),
        delay_left_ms=st.none() | st.integers(0, 10**6),
        plugins=st.none() | st.frozensets(names, max_size=3),
        config_topic=names,
        generation=st.integers(-1, 2**31 - 1),
    )
)
def test_metadata_keeps_everything_and_the_order_of_work(metadata: Metadata) -> None:
    assert CODEC.decode_metadata(CODEC.encode_metadata(metadata)) == metadata


@given(
    st.builds(
        Assignment,
        error=st.sampled_from(AssignmentError),
        leader=names,
        leader_url=names,
        config_offset=st.integers(-1, 2**40),
        change=st.builds(MemberAssignment, connectors, works, connectors, works),
        delay_ms=st.integers(0, 10**6),
        config_topic=names,
    )
)
def test_assignments_keep_everything(assignment: Assignment) -> None:
    assert CODEC.decode_assignment(CODEC.encode_assignment(assignment)) == assignment


def test_fields_of_a_newer_member_are_passed_over() -> None:
    read = CODEC.decode_metadata(b'{"v":2,"url":"u","offset":3,"colour":"blue"}')
    assert read == Metadata("u", 3)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x02",
        b"[]",
        b'{"url":"u"}',
        b'{"url":"u","offset":true}',
        b'{"url":"u","offset":1,"connectors":[1]}',
        b'{"url":"u","offset":1,"tasks":[["a",[-1]]]}',
        b'{"url":"u","offset":1,"tasks":[["a",[2147483648]]]}',
        b'{"url":"u","offset":1,"tasks":["a"]}',
    ],
)
def test_what_is_no_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        CODEC.decode_metadata(data)


@pytest.mark.parametrize("error", [2, -1])
def test_an_unknown_error_is_refused(error: int) -> None:
    data = b'{"error":%d,"leader":"l","url":"u","offset":1}' % error
    with pytest.raises(WireError, match="expected 0 or 1"):
        CODEC.decode_assignment(data)
