"""HTTP/1.1 by RFC 9112, without the deviations that it lets a server tolerate.

If a proxy and a server parse a request differently, a request can be hidden in the body of another
one (request smuggling). So requests that h11 tolerates are refused here: with lines that end in a
bare LF, folded headers, control characters, several lengths, `Content-Length` beside
`Transfer-Encoding`, chunks in HTTP/1.0 or after a malformed chunk line, or trailers, which the
server does not use.
"""

import re
from typing import Any, Final

import h11

_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_FOLDED: Final = re.compile(rb"\n[ \t]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_LENGTH: Final = re.compile(rb"\ncontent-length:([^\r\n]*)", re.IGNORECASE)
_CHUNK_LINE: Final = re.compile(rb"[0-9A-Fa-f]{1,20}(?:;[\t\x20-\x7e\x80-\xff]*)?")


class StrictConnection(h11.Connection):
    """The server's side of a connection."""

    _before_chunk = False
    """The line with the size of the next chunk was not read yet."""

    def next_event(self) -> Any:
        """Return h11's next event.

        Raises:
            h11.RemoteProtocolError: the input is not HTTP, or can be parsed in two ways.
        """
        if self.their_state is h11.IDLE:
            _check_head(self.trailing_data[0])
        elif self._before_chunk:
            self._before_chunk = not _has_chunk_line(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._before_chunk = _check_framing(event)
        elif isinstance(event, h11.Data) and event.chunk_end:
            self._before_chunk = True
        elif isinstance(event, h11.EndOfMessage) and event.headers:
            raise h11.RemoteProtocolError("a chunked body has trailers; expected none")
        return event


def _check_head(received: bytes) -> None:
    """Check a request's head, once it is complete. h11 waits for its end too.

    Raises:
        h11.RemoteProtocolError: h11 would tolerate the head, but it can be parsed in two ways.
    """
    end = _HEAD_END.search(received)
    if end is None:
        return
    head = received[: end.end()]
    if _BARE_LF.search(head):
        raise h11.RemoteProtocolError("a line of the head ends with LF; expected CRLF")
    if _FOLDED.search(head):
        raise h11.RemoteProtocolError(
            "a header goes on in the next line; expected each header in one line"
        )
    if found := _CONTROL.search(head):
        raise h11.RemoteProtocolError(f"the head has the control character {found[0][0]:#04x}")
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or any(b"," in each for each in lengths):
        raise h11.RemoteProtocolError("the request has several Content-Length; expected one")


def _has_chunk_line(received: bytes) -> bool:
    """Return whether the whole line with a chunk's size has come, after the end of the chunk
    before.

    Raises:
        h11.RemoteProtocolError: the line is malformed, although h11 would tolerate it.
    """
    line, end, _ = received.lstrip(b"\r\n").partition(b"\r\n")
    if end and not _CHUNK_LINE.fullmatch(line):
        raise h11.RemoteProtocolError(
            f"a chunk begins with the line {line[:40]!r}; expected its size in hexadecimal "
            "digits, and extensions behind a semicolon"
        )
    return bool(end)


def _check_framing(request: h11.Request) -> bool:
    """Check how a request's body is delimited. Return whether it is chunked.

    Raises:
        h11.RemoteProtocolError: it is ambiguous, or the version of HTTP is not supported.
    """
    names = {name for name, _ in request.headers}
    chunked = b"transfer-encoding" in names
    if chunked and b"content-length" in names:
        raise h11.RemoteProtocolError(
            "the request has both Content-Length and Transfer-Encoding; expected one of them"
        )
    if not request.http_version.startswith(b"1."):
        version = request.http_version.decode()
        raise h11.RemoteProtocolError(
            f"HTTP/{version} is not spoken here; expected HTTP/1.1", error_status_hint=505
        )
    if chunked and request.http_version == b"1.0":
        raise h11.RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding; expected HTTP/1.1")
    return chunked
