"""A reader of a compacted topic remembers only what it needs of each change."""

from headgate_kafka.logs.keyed_log import Changes


def test_records_without_a_key_are_all_given_and_supersede_nothing() -> None:
    changes = Changes()
    changes.add(b"k", b"1", 0, (0, 5))
    for offset in (6, 7):
        changes.add(None, b"x", 0, (0, offset))
    changes.add(b"k", b"2", 0, (0, 8))
    records, position = changes.after(0, 100)
    assert [(r.key, r.found_at) for r in records] == [
        (None, (0, 6)),
        (None, (0, 7)),
        (b"k", (0, 8)),
    ]
    assert changes.after(position, 100) == ([], position)


def test_a_flood_of_them_is_not_kept() -> None:
    changes = Changes()
    changes.add(b"k", b"1", 0)
    for offset in range(100_000):
        changes.add(None, b"x", 0, (0, offset))
    records, _ = changes.after(0, 1_000_000)
    assert records[0].key == b"k"
    assert 100 <= len(records) < 2_000
    assert records[-1].found_at == (0, 99_999)
