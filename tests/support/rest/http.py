"""Requests to a REST service, sent byte by byte."""

import http.client
import json
import socket
from typing import Any

from headgate_rest import RestService


def port_of(made: RestService) -> int:
    return int(made.worker_id.rpartition(":")[2])


def connected(made: RestService) -> socket.socket:
    made_socket = socket.create_connection(("127.0.0.1", port_of(made)), 10)
    made_socket.settimeout(10)
    return made_socket


def answer_of(raw: socket.socket) -> tuple[int, Any]:
    """Return status and body of the next answer."""
    answer = http.client.HTTPResponse(raw)
    answer.begin()
    text = answer.read()
    return answer.status, json.loads(text) if text else None


def asked(made: RestService, *sent: bytes) -> tuple[int, Any]:
    """Send these bytes on a connection of their own, and return status and body of the answer."""
    with connected(made) as raw:
        for part in sent:
            raw.sendall(part)
        return answer_of(raw)


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", "")).encode()


def is_closed(raw: socket.socket) -> bool:
    """Wait for the server to close the connection."""
    try:
        while raw.recv(65_536):
            pass
    except ConnectionError:
        return True
    return True
