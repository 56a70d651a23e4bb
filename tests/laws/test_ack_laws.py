"""Without transactions, a source may commit only the offset of the last record before the first
unacknowledged one, per source partition, however acknowledgements come."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.task.acks import AckTracker

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.just("pass"), st.sampled_from("abc"), st.just(1)),
        st.tuples(st.just("ack"), st.integers(0, 40), st.integers(0, 6)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("take and put back"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Plain:
    """The same, record by record."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int]] = []
        self.order: dict[str, list[tuple[int, int]]] = {}
        self.acked: set[int] = set()
        self.offset = 0

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    def committable(self, partition: str) -> int | None:
        last = None
        for number, offset in self.order.get(partition, []):
            if number >= 0 and number not in self.acked:
                break
            last = offset
        return last


@settings(max_examples=200, deadline=None)
@given(OPERATIONS)
def test_committed_is_the_end_of_the_leading_acknowledged_run(
    operations: list[tuple[str, object, int]],
) -> None:
    plain, tracker = Plain(), AckTracker[str, int]()
    committed: dict[str, int] = {}
    for name, where, count in operations:
        if name == "submit":
            offsets = [plain.next_offset() for _ in range(count)]
            for offset in offsets:
                number = len(plain.records)
                plain.records.append((str(where), offset))
                plain.order.setdefault(str(where), []).append((number, offset))
            tracker.submit(str(where), offsets)
        elif name == "pass":
            offset = plain.next_offset()
            plain.order.setdefault(str(where), []).append((-1, offset))
            tracker.pass_over(str(where), offset)
        elif name == "ack":
            assert isinstance(where, int)
            last = min(where + count, len(plain.records) - 1)
            if where <= last:
                plain.acked.update(range(where, last + 1))
                tracker.acknowledge(where, last)
        elif name == "take":
            taken = tracker.take()
            assert all(committed.get(key, 0) < offset for key, offset in taken.items())
            committed.update(taken)
            for partition in "abc":
                assert committed.get(partition) == plain.committable(partition)
        else:
            tracker.put_back(tracker.take())
    waiting = sum(
        1
        for partition, entries in plain.order.items()
        for number, offset in entries
        if offset > (plain.committable(partition) or 0) and number >= 0
    )
    tracker.take()
    assert tracker.outstanding >= waiting
