"""Arrow finds the bounds of lines where Python's own splitting finds them."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate_connectors.formats.blocks import Block
from headgate_connectors.formats.line_bounds import LineBounds

END = st.sampled_from([b"\n", b"\r\n"])
TEXT = st.text("{}ax ", max_size=4).map(str.encode)
LINES = st.lists(st.tuples(TEXT, END).map(b"".join), max_size=12)


def expected(lines: list[bytes], start: int) -> list[tuple[int, int]]:
    bounds = [*accumulate(map(len, lines), initial=start)]
    return [*pairwise(bounds)]


@given(LINES, st.integers(0, 1 << 40))
def test_bounds_are_those_of_the_lines(lines: list[bytes], start: int) -> None:
    bounds = LineBounds(b"".join(lines))
    assert [*zip(bounds.starts(start), bounds.ends(start), strict=True)] == expected(lines, start)
    assert (bounds.longest, bounds.shortest) == (
        max(map(len, lines), default=0),
        min(map(len, lines), default=0),
    )


@given(LINES, st.integers(0, 12), st.integers(0, 99))
def test_a_block_has_the_first_rows_that_are_not_blank(
    lines: list[bytes], count: int, start: int
) -> None:
    rows = [
        one for one, line in zip(expected(lines, start), lines, strict=True) if line.strip(b"\r\n")
    ]
    block = Block(b"".join(lines), start, None)
    block.without_blank_lines()
    block.limit(count)
    kept = rows[:count]
    assert len(block) == len(kept)
    assert [*zip(block.starts, block.ends, strict=True)] == kept
    assert block.data == b"".join(lines)[: kept[-1][1] - start if kept else 0]


@given(st.lists(st.tuples(TEXT.filter(bool), END), max_size=8))
def test_lines_within_braces_are_told_from_others(lines: list[tuple[bytes, bytes]]) -> None:
    bounds = LineBounds(b"".join(text + end for text, end in lines))
    among = all(text.startswith(b"{") and text.endswith(b"}") for text, _ in lines)
    assert bounds.are_within(*b"{}") is among
