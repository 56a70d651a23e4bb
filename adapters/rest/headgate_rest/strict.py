"""HTTP/1.1 as RFC 9112 writes it, without what it lets a server forgive.

Behind a proxy that reads a request otherwise than its server, a request can be hidden in the body
of another one (request smuggling). So what h11 forgives is refused here: lines that end with a bare
LF, folded headers, `Content-Length` beside `Transfer-Encoding`, and trailers, which nobody reads.
"""

import re
from typing import Any, Final

import h11

_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_FOLDED: Final = re.compile(rb"\n[ \t]")


class StrictConnection(h11.Connection):
    """A server's side of a connection."""

    def next_event(self) -> Any:
        """
        Raises:
            h11.RemoteProtocolError: it is not HTTP, or can be read in two ways.
        """
        if self.their_state is h11.IDLE:
            _check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            _check_framing(event)
        elif isinstance(event, h11.EndOfMessage) and event.headers:
            raise h11.RemoteProtocolError("a chunked body has trailers; expected none")
        return event


def _check_head(received: bytes) -> None:
    """Nothing to be said before the head is complete: h11 waits for its end, too."""
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


def _check_framing(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError(
            "the request has both Content-Length and Transfer-Encoding; expected one of them"
        )
