"""``headgate context`` gives names to clusters, and a command uses one of them."""

import base64
import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headgate_embedded import hold_folder
from headgate_runtime.command.parser import app
from headgate_runtime.remote import context_commands, contexts, locate
from headgate_runtime.remote.contexts import Context, Contexts
from headgate_runtime.remote.remote import RemoteError

RUN = CliRunner()
HTTP = "http://127.0.0.1:8083"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts, which is not there yet; the current folder is empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    path = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv("HEADGATE_CONTEXTS", str(path))
    return path


def context(*arguments: str, given: str | None = None) -> Result:
    return RUN.invoke(app, ["context", *arguments], input=given)


def ok(*arguments: str, given: str | None = None) -> str:
    done = context(*arguments, given=given)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str, given: str | None = None) -> str:
    done = context(*arguments, given=given)
    assert done.exit_code in (1, 2) and not done.stdout, done.output
    return done.stderr


def test_contexts_are_set_used_listed_shown_and_deleted(file: Path) -> None:
    assert ok("list") == "no contexts; headgate context set NAME --url ADDRESS makes one\n"
    assert ok("set", "local", "--url", HTTP) == "local set; it is the current context\n"
    assert ok("set", "prod", "--url", "https://connect.example:8083/") == "prod set\n"
    assert [line.split() for line in ok("list").splitlines()] == [
        ["CURRENT", "NAME", "ADDRESS", "USER"],
        ["*", "local", HTTP],
        ["prod", "https://connect.example:8083"],
    ]
    assert ok("use", "prod") == "prod is the current context\n"
    assert contexts.read().current == "prod"
    assert json.loads(ok("show", "-o", "json"))["url"] == "https://connect.example:8083"
    assert ok("set", "prod", "--url", "grpcs://w:1") == "prod changed\n"
    assert json.loads(ok("show", "prod", "-o", "json"))["url"] == "grpcs://w:1"
    assert ok("delete", "prod") == "prod deleted; no context is current now\n"
    assert ok("delete", "local") == "local deleted\n"
    ok("set", "third", HTTP)
    assert json.loads(ok("show", "third", "-o", "json"))["url"] == HTTP
    ok("delete", "third")
    assert contexts.read() == Contexts()


def test_a_name_that_is_not_there_lists_those_that_are(file: Path) -> None:
    assert "there is none; headgate context set prod" in refused("use", "prod")
    ok("set", "prod", "--url", HTTP)
    ok("set", "test", "--url", HTTP)
    for command in ("use", "show", "delete"):
        told = refused(command, "pord")
        assert "there is no context pord; did you mean prod?" in told
        assert "next: there are prod, test;" in told
    done = RUN.invoke(app, ["status", "--context", "pord"])
    assert done.exit_code == 2 and "there are prod, test" in done.stderr


def test_the_file_and_its_folder_are_their_users_alone(file: Path) -> None:
    ok("set", "prod", "--url", HTTP)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    ok("set", "test", "--url", HTTP)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADGATE_CONTEXTS")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts.path() == tmp_path / ".config/headgate/contexts.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert contexts.path() == tmp_path / ".config/headgate/contexts.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "x"))
    assert contexts.path() == tmp_path / "x/headgate/contexts.json"


def test_a_password_is_kept_and_never_shown(file: Path) -> None:
    set_it = ("set", "prod", "--url", "https://c:1", "--username", "ops", "--password-stdin")
    shown = ok(*set_it, given="hush hush\n")
    assert contexts.read().by_name["prod"].password == "hush hush"
    shown += ok("show") + ok("list") + ok("list", "-o", "json") + ok("show", "-o", "json")
    shown += repr(contexts.read())
    assert "hush" not in shown and "[hidden]" in shown
    ok("set", "prod", "--ca-file", __file__)
    assert contexts.read().by_name["prod"].password == "hush hush"
    ok("set", "prod", "--username", "")
    assert contexts.read().by_name["prod"] == Context("https://c:1", ca_file=__file__)


def test_a_password_is_asked_for_on_a_terminal_only(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_it = ("set", "prod", "--url", "http://c:1", "--username", "ops")
    assert "give it on standard input, with --password-stdin" in refused(*set_it)
    assert not file.exists()

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(context_commands.sys, "stdin", Terminal())
    asked: list[Any] = []

    def prompt(text: str, **options: Any) -> str:
        asked.append((text, options["hide_input"]))
        return "hush"

    monkeypatch.setattr(context_commands.typer, "prompt", prompt)
    monkeypatch.setattr(context_commands, "complain", asked.append)
    context_commands.set_context("prod", url="http://c:1", username="ops")
    assert asked[0] == ("Password of ops", True)
    assert "unencrypted" in asked[1]
    assert contexts.read().by_name["prod"].password == "hush"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a:b", "--url", HTTP], "'a:b' is no name of a context"),
        (["a", "--url", "host:8083"], "'host:8083' is no address of a cluster"),
        (["a"], "context a has no address yet\n  next: give --url ADDRESS"),
        (["a", "--url", "http://me:hush@c:1"], "next: give http://c:1 with HEADGATE_USERNAME"),
        (["a", HTTP, "--url", "http://b:1"], "two addresses are given"),
        (["a", "--url", HTTP, "--ca-file", "none.pem"], "none.pem cannot be read"),
        (["a", "--url", HTTP, "--key-file", __file__], "a key without a certificate"),
        (["a", "--url", HTTP, "--password-stdin"], "a password without a user"),
        (["a", "--url", HTTP, "--username", "a:b", "--password-stdin"], "no colon in a user"),
        (
            ["a", "--url", "grpc://c:1", "--username", "u", "--password-stdin"],
            "grpc://c:1 takes no user",
        ),
    ],
)
def test_what_makes_no_context_is_refused(file: Path, arguments: list[str], words: str) -> None:
    told = refused("set", *arguments, given="hush\n")
    assert words in told and "hush" not in told
    assert not file.exists()


@pytest.mark.parametrize("given", ["", "\n", "\r\nhush\n"])
def test_an_empty_input_is_no_password(file: Path, given: str) -> None:
    set_it = ("set", "a", "--url", "https://c:1", "--username", "u", "--password-stdin")
    assert "standard input has no password" in refused(*set_it, given=given)
    assert not file.exists()


def test_a_user_with_a_colon_is_refused_in_the_environment_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_USERNAME", "a:b")
    done = RUN.invoke(app, ["status", "--url", HTTP])
    assert done.exit_code == 2 and "the user 'a:b' has a colon" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a file of contexts: "),
        ("[]", 'expected {"current": NAME'),
        ('{"contexts": {"a": {}}}', "a has no url"),
        ('{"contexts": {"a": {"url": "u", "usernam": "x"}}}', "did you mean username?"),
        ('{"contexts": {"a": {"url": "u", "username": 1}}}', "username of a is no text"),
        ('{"contexts": {}, "current": 1}', "current is no text"),
    ],
)
def test_a_file_that_is_none_of_contexts_is_named_and_kept(
    file: Path, text: str, words: str
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert str(file) in (told := refused("set", "a", "--url", HTTP)) and words in told
    assert file.read_text() == text
    assert words in RUN.invoke(app, ["status", "--context", "a"]).stderr


def test_paths_are_kept_whole(file: Path) -> None:
    Path("ca.pem").touch()
    ok("set", "a", "--url", "unix:state/grpc.sock", "--ca-file", "ca.pem")
    found = contexts.read().by_name["a"]
    assert found.url == f"unix:{Path.cwd()}/state/grpc.sock"
    assert found.ca_file == f"{Path.cwd()}/ca.pem"


def test_two_commands_at_once_lose_nothing(file: Path) -> None:
    def make(number: int) -> None:
        for each in range(10):
            with contexts.changed() as change:
                known = change.contexts.by_name
                change.contexts = Contexts({**known, f"c{number}-{each}": Context(HTTP)})

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(contexts.read().by_name) == 40


def test_a_file_behind_a_link_is_changed_where_it_is(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text('{"contexts": {}}')
    file.parent.mkdir()
    file.symlink_to(real)
    ok("set", "a", "--url", HTTP)
    assert file.is_symlink() and '"a"' in real.read_text()


def test_a_file_behind_a_link_may_be_on_another_file_system(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "elsewhere" / "kept.json"
    file.parent.mkdir()
    file.symlink_to(real)
    replace = Path.replace

    def within(source: Path, target: Path) -> Path:
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", within)
    ok("set", "a", "--url", HTTP)
    assert file.is_symlink() and '"a"' in real.read_text()
    assert [path.name for path in real.parent.iterdir()] == [real.name]


def test_a_file_that_is_a_link_to_itself_is_told(file: Path) -> None:
    file.parent.mkdir()
    file.symlink_to(file)
    assert f"{file}: Too many levels of symbolic links" in refused("set", "a", "--url", HTTP)


# -- which cluster is meant --


def listening(folder: Path) -> socket.socket:
    """A socket, as that of a `headgate up` on the data folder `folder`."""
    folder.mkdir()
    here = socket.socket(socket.AF_UNIX)
    here.bind(os.path.relpath(folder / "grpc.sock"))
    return here


def test_what_goes_before_what(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--url, then HEADGATE_URL, then the `headgate up` of this folder, then the current context."""
    ok("set", "prod", "--url", "http://prod:1")
    ok("set", "test", "--url", "http://test:1")
    assert locate.found(None).url == "http://prod:1"
    with listening(Path("state")):
        assert locate.found(None).url == "unix:state/grpc.sock"
        assert locate.found("test").url == "http://test:1"
        shown = context("show")
        assert "note: here commands ask unix:state/grpc.sock, by the headgate up" in shown.stderr
        monkeypatch.setenv("HEADGATE_URL", "http://variable:1")
        assert locate.found(None).url == "http://variable:1"
        assert locate.found("grpc://given:1").url == "grpc://given:1"
        monkeypatch.setenv("HEADGATE_URL", "test")
        assert (locate.found(None).url, locate.found(None).context) == ("http://test:1", "test")
        assert "here commands ask test, by HEADGATE_URL" in context("show").stderr


def test_in_the_folder_of_an_up_that_has_ended_no_other_cluster_is_changed(file: Path) -> None:
    """A user who believes that it still runs would delete a connector of the current context."""
    ok("set", "prod", "--url", HTTP)
    with hold_folder(Path("state")):
        pass
    with pytest.raises(RemoteError, match=r"that does not run\n  next: .* --context prod") as told:
        locate.found(None)
    assert told.value.exit_code == 2
    assert locate.found("prod").url == HTTP


def test_without_a_current_context_those_that_are_there_are_named(file: Path) -> None:
    with pytest.raises(RemoteError, match="headgate context set NAME --url ADDRESS keeps it"):
        locate.found(None)
    ok("set", "prod", "--url", HTTP)
    ok("set", "test", "--url", HTTP)
    ok("delete", "prod")
    with pytest.raises(RemoteError, match=r"no context is current\n.*there are test"):
        locate.found(None)


@pytest.mark.parametrize("text", ["localhost", "connect.example.net"])
def test_a_host_without_a_scheme_is_not_taken_for_a_context(file: Path, text: str) -> None:
    with pytest.raises(RemoteError, match="is no address of a cluster"):
        locate.found(text)
    ok("set", text, "--url", HTTP)
    assert locate.found(text).url == HTTP


def test_a_login_in_an_address_is_refused_and_not_repeated(file: Path) -> None:
    done = RUN.invoke(app, ["status", "--url", "http://me:hush@127.0.0.1:9"])
    assert done.exit_code == 2
    assert "http://127.0.0.1:9 with HEADGATE_USERNAME" in done.stderr
    assert "hush" not in done.output


@pytest.mark.parametrize(
    "rest", ["[::1", "[::1]:x", "c:99999", "c:abc", "", ":8083", "c:0", "hüte"]
)
@pytest.mark.parametrize("scheme", ["http", "grpcs"])
def test_an_address_that_cannot_be_read_is_named(file: Path, scheme: str, rest: str) -> None:
    url = f"{scheme}://{rest}"
    for command in (["status", "--url", url], ["context", "set", "a", "--url", url]):
        done = RUN.invoke(app, command)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert f"{url!r} is no address of a cluster" in done.stderr
        assert "\n  next: give http://HOST:PORT" in done.stderr
        done = RUN.invoke(app, [*command[:-1], url.replace("//", "//me:hush@")])
        assert done.exit_code == 2 and "hush" not in done.output
    assert not file.exists()


class Guarded(BaseHTTPRequestHandler):
    """A worker that lets `ops` in, as BasicAuthSecurityRestExtension of Kafka Connect does."""

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode("ops:hüsh".encode()).decode()
        let_in = self.headers.get("Authorization") == expected
        body = b"{}" if let_in else b"User cannot access the resource."
        self.send_response(200 if let_in else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_login_is_given_along(file: Path, guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = ["connectors", "list", "--url"]
    done = RUN.invoke(app, [*listing, guarded])
    assert done.exit_code == 1 and "wants a user and a password\n  next: headgate c" in done.stderr
    ok("set", "c", "--url", guarded, "--username", "ops", "--password-stdin", given="hüsh\n")
    assert RUN.invoke(app, [*listing, "c"]).stdout == "no connectors\n"
    assert RUN.invoke(app, listing[:-1]).stdout == "no connectors\n"
    ok("set", "c", "--username", "ops", "--password-stdin", given="wrong\n")
    done = RUN.invoke(app, [*listing, "c"])
    assert done.exit_code == 1 and "does not let ops in with this password" in done.stderr
    monkeypatch.setenv("HEADGATE_USERNAME", "ops")
    monkeypatch.setenv("HEADGATE_PASSWORD", "hüsh")
    assert RUN.invoke(app, [*listing, guarded]).stdout == "no connectors\n"
    # A context is complete: what another cluster is to be told is not told to this one.
    ok("set", "c", "--username", "")
    assert RUN.invoke(app, [*listing, "c"]).exit_code == 1


def test_the_shell_completes_names_of_contexts(file: Path) -> None:
    ok("set", "prod", "--url", HTTP)
    ok("set", "test", "--url", HTTP)
    for line in (
        "headgate context use p",
        "headgate status --context p",
        "headgate status --url p",
    ):
        asked = {
            "_HEADGATE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        done = RUN.invoke(app, [], prog_name="headgate", env=asked)
        assert done.stdout.split() == ["prod"], line
    file.write_text("{")
    done = RUN.invoke(app, [], prog_name="headgate", env=asked)
    assert (done.stdout.strip(), done.stderr) == ("", "")
