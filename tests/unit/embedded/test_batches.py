"""Batches of records as bytes."""

import sys
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.ports import LogBatch, ProducerRecord, RowNumbers, TransportError
from headgate_embedded.batches import COMPRESSIONS, decode, decode_batch, encode, encode_batch

optional_bytes = st.none() | st.binary(max_size=20)
names = st.sampled_from(["a", "", "ü\0"])
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=3)
records = st.builds(
    ProducerRecord,
    topic=st.just("t"),
    partition=st.just(3),
    key=optional_bytes,
    value=optional_bytes,
    headers=headers.map(tuple),
    timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=150)
@given(
    batch=st.lists(records, min_size=1, max_size=12),
    start=st.integers(90, 115),
    compression=st.sampled_from(sorted(COMPRESSIONS.values())),
)
def test_batch_comes_back_from_any_offset_on(
    batch: list[ProducerRecord], start: int, compression: int
) -> None:
    data = encode(batch, 77, compression)
    expected = [
        (
            "t",
            3,
            100 + n,
            r.key,
            r.value,
            r.headers,
            77 if r.timestamp_ms is None else r.timestamp_ms,
            "",
        )
        for n, r in enumerate(batch)
    ]
    found = [astuple(r) for r in decode("t", 3, 100, data, start)]
    assert found == expected[max(start - 100, 0) :]


def test_a_machine_of_the_other_byte_order_swaps_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = LogBatch("t", 0, 2, None, (("n", RowNumbers([1, 258])),), 0, b"", b"")
    made = [encode([ProducerRecord("t", 0, b"k", b"v")], 7), encode_batch(rows, 7)]
    other = "big" if sys.byteorder == "little" else "little"
    monkeypatch.setattr(sys, "byteorder", other)
    swapped = [encode([ProducerRecord("t", 0, b"k", b"v")], 7), encode_batch(rows, 7)]
    assert all(one != two for one, two in zip(made, swapped, strict=True))
    assert [one.value for one in decode("t", 0, 0, swapped[0])] == [b"v"]
    assert decode_batch("t", 0, 0, swapped[1]).headers == rows.headers


@pytest.mark.parametrize("at", [0, 7, 30, -1])
def test_damaged_batch_is_told_not_read(at: int) -> None:
    data = bytearray(encode([ProducerRecord("t", 0, b"key", b"value" * 10)], 0))
    data[at] ^= 1
    with pytest.raises(TransportError, match="t-0 offset 5 is damaged"):
        decode("t", 0, 5, bytes(data))
