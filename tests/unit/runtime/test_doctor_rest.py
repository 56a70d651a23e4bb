"""`headgate doctor` checks a worker's REST settings, and its ports on this machine."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from support.rest.world import service

from headgate.assignment.model import MemberAssignment
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Metadata
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusView
from headgate_grpc.internal.signing import SKEW_MS
from headgate_kafka.group.describe import DescribedGroup, DescribedMember
from headgate_rest import RestSettings, try_to_reach
from headgate_runtime.command.doctor import CLOCKS_S, Check, Outcome, _members, _rest
from headgate_runtime.observe.view import Look

TOPICS = {"config": "configs", "status": "statuses", "offset": "offsets"}


@pytest.fixture
def taken() -> Iterator[str]:
    """A listener whose port another process has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def look(*members: DescribedMember) -> Look:
    group = DescribedGroup("g", "Stable", "connect", "sessioned", members, "h:9092")
    return Look(group, TOPICS, ConfigState(), StatusView())


def member(url: str) -> DescribedMember:
    codec = CODECS["sessioned"]
    metadata = codec.encode_metadata(Metadata(url, 4, (), ()))
    none = MemberAssignment()
    given = Assignment(AssignmentError.NONE, "m", url, 4, none, 0)
    return DescribedMember("m", "connect", "/h", metadata, codec.encode_assignment(given))


def only(worker: dict[str, str], seen: Look | None) -> Check:
    (check,) = _rest(worker, seen)
    return check


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        ({"listeners": "foo"}, "Invalid value foo for configuration listeners: Listener doesn't"),
        ({"listeners": "https://:0"}, "listeners has https, but ssl.keystore.location is not set"),
        ({"rest.advertised.listener": "ftp"}, "Invalid value ftp for configuration rest.adv"),
        ({"admin.listeners": "foo"}, "Invalid value foo for configuration admin.listeners"),
        ({"response.http.headers.config": "x"}, "configuration response.http.headers.config"),
        (
            {
                "listeners": "https://127.0.0.1:0",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "not-there.pem",
            },
            "listeners: cannot use not-there.pem (ssl.keystore.location",
        ),
        ({"listeners": "http://203.0.113.7:0"}, "cannot listen on http://203.0.113.7:0"),
    ],
)
def test_what_a_worker_would_refuse_is_to_be_mended(worker: dict[str, str], text: str) -> None:
    check = only({"listeners": "http://127.0.0.1:0", **worker}, look())
    assert check.outcome is Outcome.BAD
    assert text in check.text


def test_ports_that_are_free_are_left_free(taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    free = {"listeners": f"http://127.0.0.1:{port}", "admin.listeners": "http://127.0.0.1:0"}
    for _ in range(2):
        check = only(free, look())
        assert (check.outcome, check.text) == (
            Outcome.GOOD,
            f"it can listen as http://127.0.0.1:{port}/",
        )
    running = look(member(f"http://127.0.0.1:{port}/"))
    check = only({**free, "admin.listeners": taken}, running)
    assert check.outcome is Outcome.BAD
    assert check.text.startswith(f"admin.listeners: cannot listen on {taken}")


def test_a_port_that_this_worker_has_itself_is_no_fault(taken: str) -> None:
    check = only({"listeners": taken}, look(member("http://other:8083/"), member(f"{taken}/")))
    assert check.outcome is Outcome.NOTE
    assert f"{taken}/ is a member of the group" in check.text


def test_a_port_that_another_process_has_is_to_be_mended(taken: str) -> None:
    check = only({"listeners": taken}, look(member("http://other:8083/")))
    assert check.outcome is Outcome.BAD
    assert f"cannot listen on {taken}" in check.text
    assert f"No member of the group is {taken}/" in check.text


def test_who_has_a_port_is_not_guessed_where_the_members_were_not_seen(taken: str) -> None:
    silent = DescribedMember("m", "connect", "/h", b"", b"")
    for seen in (None, look(silent)):
        check = only({"listeners": taken}, seen)
        assert check.outcome is Outcome.NOTE
        assert "could not be seen" in check.text


def test_the_address_of_each_member_is_tried() -> None:
    """A leader that advertises another address passes every check of its own file."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with served() as url:
        members = [{"name": "near", "url": url}, {"name": "far", "url": nobody}]
        good, bad = _members({}, {"leader": "far", "members": members})
    assert (good.outcome, good.about, good.text) == (
        Outcome.GOOD,
        "members",
        f"{url}: HTTP is answered",
    )
    assert (bad.outcome, bad.about) == (Outcome.BAD, "leader far")
    assert bad.text.startswith(f"{nobody} could not be reached from here: [Errno 111]")
    assert "rest.advertised.host.name" in bad.text


@pytest.mark.parametrize(
    ("ahead_s", "outcome", "says"),
    [
        (2_000, Outcome.BAD, "s ahead of that of this machine: calls between the two by gRPC"),
        (-400, Outcome.BAD, "s behind that of this machine"),
        (100, Outcome.NOTE, "s ahead of that of this machine; set both"),
        (5, None, ""),
    ],
)
def test_clocks_that_differ_are_named(
    ahead_s: int, outcome: Outcome | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(int(time.time()) + ahead_s)

    with served(Other) as url:
        members = [{"name": "near", "url": url}]
        checks = list(_members({}, {"leader": "near", "members": members}))
    found = [(each.outcome, each.about) for each in checks[1:]]
    assert found == ([] if outcome is None else [(outcome, "leader near")])
    assert says in checks[-1].text


def test_a_worker_of_ours_tells_its_time() -> None:
    with closing(service()) as rest:
        rest.start()
        (reached,) = try_to_reach(RestSettings.of({}), [rest.url]).values()
    assert reached.reason is None and abs(reached.ahead_s or 99) < 5


def test_the_limit_is_that_of_the_signatures() -> None:
    assert CLOCKS_S * 1000 == SKEW_MS


@contextmanager
def served(
    handler: type[http.server.BaseHTTPRequestHandler] = http.server.BaseHTTPRequestHandler,
) -> Iterator[str]:
    """A server that knows no path: that is an answer, too."""
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
