"""Finds the bounds of the lines of a block with Arrow, without a Python object for each line."""

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_LF, _CR = (pa.scalar(octet, pa.uint8()) for octet in b"\n\r")
_BEGIN = pa.array([0], pa.int64())


class LineBounds:
    """Bounds of the lines of `data`, which end with LF or CRLF. Positions count from the beginning
    of `data`."""

    def __init__(self, data: bytes) -> None:
        self._octets = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
        line_feeds = pc.indices_nonzero(pc.equal(self._octets, _LF))
        self._ends = pc.add(line_feeds.cast(pa.int64()), 1)
        self._starts = pa.concat_arrays([_BEGIN, self._ends])[:-1]
        lengths = pc.min_max(pc.subtract(self._ends, self._starts)).as_py()
        self.longest: int = lengths["max"] or 0
        """Bytes of the longest line, including its line end."""
        self.shortest: int = lengths["min"] or 0

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def end(self) -> int:
        """Position after the last line. 0: there is no line."""
        return self._ends[-1].as_py() if len(self) else 0

    def starts(self, offset: int) -> Sequence[int]:
        """Return the position at which each line begins, plus `offset`."""
        return _integers(pc.add(self._starts, offset))

    def ends(self, offset: int) -> Sequence[int]:
        """Return the position after each line, plus `offset`."""
        return _integers(pc.add(self._ends, offset))

    def drop_blank_lines(self) -> None:
        """Keep only the lines that have more than their line end."""
        lengths = pc.subtract(self._ends, self._starts)
        begins_with_cr = pc.equal(self._octets.take(self._starts), _CR)
        is_blank = pc.or_(pc.equal(lengths, 1), pc.and_(pc.equal(lengths, 2), begins_with_cr))
        kept = pc.invert(is_blank)
        self._starts, self._ends = self._starts.filter(kept), self._ends.filter(kept)

    def limit(self, count: int) -> None:
        """Keep the first `count` lines."""
        self._starts, self._ends = self._starts[:count], self._ends[:count]

    def are_within(self, first: int, last: int) -> bool:
        """Return whether each line begins with the octet `first` and has `last` before its line
        end. No line may be blank."""
        behind_text = pc.subtract(self._ends, 1)
        has_cr = pc.equal(self._octets.take(pc.subtract(behind_text, 1)), _CR)
        behind_text = pc.subtract(behind_text, has_cr.cast(pa.int64()))
        begins = pc.equal(self._octets.take(self._starts), pa.scalar(first, pa.uint8()))
        ends = pc.equal(self._octets.take(pc.subtract(behind_text, 1)), pa.scalar(last, pa.uint8()))
        return bool(pc.all(pc.and_(begins, ends), min_count=0).as_py())


def _integers(numbers: pa.Int64Array) -> Sequence[int]:
    found = array("q")
    data = memoryview(numbers.buffers()[1])
    found.frombytes(data[8 * numbers.offset : 8 * (numbers.offset + len(numbers))])
    return found
