"""The path of a message in its file, which comes between a schema's id and the message.

It is the count of its indexes, then the index of each message from the outermost inwards, all as
zigzag varints. A single zero stands for the first message.
"""

from headgate.connector.data_error import DataError

FIRST = b"\0"


def path_of(data: bytes) -> tuple[list[int], int]:
    """Return the path, and the position at which the message begins.

    Raises:
        DataError: the bytes end within the path, or its count is impossible.
    """
    count, at = _number(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= len(data):
        raise DataError(f"a path of {count} messages, expected fewer")
    path: list[int] = []
    for _ in range(count):
        number, at = _number(data, at)
        path.append(number)
    return path, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DataError(f"{len(data)} bytes end within the path of the message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
