"""Hosts of ``bootstrap.servers`` that have no address."""

import socket
from typing import Any

import pytest

from headgate.ports import RefusedError, TransportError
from headgate_kafka.clients import names
from headgate_kafka.clients.names import check_names, check_names_for_good


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A resolver that does not resolve the given hosts, each for its reason, and resolves all
    others. It counts in ``asked``."""
    known: dict[str, int] = {"asked": 0}

    def ask(host: str, _port: Any) -> list[Any]:
        known["asked"] += 1
        if (code := known.get(host)) is not None:
            raise socket.gaierror(code, "Name or service not known")
        return []

    monkeypatch.setattr(names.socket, "getaddrinfo", ask)
    return known


def check(servers: str) -> list[float]:
    """Raises what the check raises; else how long it has waited each time."""
    waited: list[float] = []
    check_names_for_good(servers, sleep=waited.append, now=lambda: sum(waited))
    return waited


def test_one_host_with_an_address_is_enough(resolver: dict[str, int]) -> None:
    resolver["b"] = resolver["::1"] = socket.EAI_NONAME
    assert check("PLAINTEXT://b:1, [::1]:2,c:3") == []
    assert resolver["asked"] == 3
    check_names("b:1,c:3")


def test_a_name_that_nobody_knows_is_refused_at_once(resolver: dict[str, int]) -> None:
    resolver["b"] = socket.EAI_NONAME
    with pytest.raises(RefusedError, match=r"No resolvable bootstrap urls .*: b: Name or service"):
        check("b:1")
    assert resolver["asked"] == 1
    with pytest.raises(TransportError, match=r"b: Name or service"):
        check_names("b:1")


def test_a_resolver_that_is_away_has_some_time(resolver: dict[str, int]) -> None:
    resolver["b"] = socket.EAI_AGAIN
    with pytest.raises(RefusedError, match=r"b: Name or service"):
        check("b:1")
    assert resolver["asked"] == names.PATIENCE_S + 1
