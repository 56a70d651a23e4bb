"""Bytes that came with the end of a kafka-python connection are read before it ends."""

import asyncio
import socket
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport

from headgate_kafka.group.link import _Manager


def test_an_answer_behind_which_the_broker_closes_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers refuse a login in this way. Otherwise the refusal would sometimes look like a closed
    connection, and a worker whose password was revoked would try for ever."""
    here, broker = socket.socketpair()
    here.setblocking(False)
    net: Any = None

    async def connected(_manager: Any, _node: Any, timeout_at: float | None = None) -> Any:
        return KafkaTCPTransport(net, here)

    monkeypatch.setattr(KafkaConnectionManager, "_build_transport", connected)
    transport = asyncio.run(_Manager.__new__(_Manager)._build_transport(None))
    broker.sendall(b"not with this password")
    broker.close()
    assert transport._sock_recv() == (b"not with this password", None)
    data, error = transport._sock_recv()
    assert data == b"" and "disconnected" in str(error)
    here.close()
