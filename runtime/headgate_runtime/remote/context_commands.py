"""``headgate context``: names for clusters, and the cluster that commands are about."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate.connector.config import HIDDEN
from headgate_runtime.command.help import Guessing, example
from headgate_runtime.remote import contexts, locate, show
from headgate_runtime.remote.complete import context_names
from headgate_runtime.remote.contexts import Context, Contexts
from headgate_runtime.remote.options import (
    HEADING,
    Format,
    Output,
    complain,
    refuse,
    say,
    told,
)
from headgate_runtime.remote.remote import RemoteError

SET: Final = example(
    "headgate context set prod --url https://connect.example.net:8083 --username ops",
    "headgate context set local --url http://localhost:8083",
)
ContextName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=context_names),
]

context = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Name clusters, and choose the one that commands are about.",
    epilog=example(
        "headgate context set prod --url grpc://worker1:8085",
        "headgate context use prod",
        "headgate status --context prod",
    ),
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(context, name="context", rich_help_panel=HEADING)


@context.command("set", epilog=SET)
def set_context(
    name: ContextName,
    address: Annotated[
        str | None, typer.Argument(metavar="ADDRESS", help="The same as --url.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="ADDRESS", help="As for headgate status."),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option("--ca-file", metavar="FILE", help="PEM: whose certificates are trusted."),
    ] = None,
    certificate_file: Annotated[
        str | None,
        typer.Option("--certificate-file", metavar="FILE", help="PEM: your own certificate."),
    ] = None,
    key_file: Annotated[
        str | None, typer.Option("--key-file", metavar="FILE", help="PEM: its key.")
    ] = None,
    username: Annotated[
        str | None,
        typer.Option(
            "--username",
            metavar="USER",
            help="Of basic authentication, for http(s). The password is asked for.",
        ),
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
) -> None:
    """Make a context, or change what is given and leave the rest. An empty text takes a setting
    away. The first context is the current one."""
    if not contexts.is_name(name):
        refuse(f"{name!r} is no name of a context\n  next: use letters, digits, '.', '-' and '_'")
    if address is not None and url is not None:
        refuse(f"two addresses are given, {address} and {url}\n  next: give one")
    if ":" in (username or ""):
        refuse(
            f"--username {username}: basic authentication has no colon in a user\n"
            "  next: give the user alone; the password is asked for"
        )
    url = address if url is None else url
    given = {
        "url": None if url is None else _address(url),
        "ca_file": _file(ca_file),
        "certificate_file": _file(certificate_file),
        "key_file": _file(key_file),
        "username": username,
    }
    if username or password_stdin:
        given["password"] = _password(username or "", from_input=password_stdin)
    elif username == "":
        given["password"] = ""
    _keep(name, {key: value for key, value in given.items() if value is not None})


def _keep(name: str, given: dict[str, str]) -> None:
    """Write the given settings of a context, and say so."""
    with told(), contexts.changed() as change:
        known = change.contexts
        before = known.by_name.get(name)
        if before is None and "url" not in given:
            refuse(f"context {name} has no address yet\n  next: give --url ADDRESS with it")
        made = replace(before or Context(""), **given)
        _check(made)
        first = not known.by_name
        current = name if first else known.current
        change.contexts = Contexts({**known.by_name, name: made}, current)
    say(f"{name} {'set' if before is None else 'changed'}" + "; it is the current context" * first)
    if made.password and made.url.startswith("http://"):
        complain("note: http:// sends the password unencrypted; https:// does not")


@context.command("use", epilog=example("headgate context use prod"))
def use(name: ContextName) -> None:
    """Make a context the current one."""
    with told(), contexts.changed() as change:
        change.contexts.named(name)
        change.contexts = Contexts(change.contexts.by_name, name)
    say(f"{name} is the current context")
    _note_others(name)


@context.command("list", epilog=example("headgate context list"))
def list_contexts(output: Format = Output.TABLE) -> None:
    """List the contexts; the current one has a star."""
    with told():
        known = contexts.read()
    names = sorted(known.by_name)
    if output is Output.JSON:
        say(show.as_json([_plain(known, name) for name in names]))
    elif not names:
        say("no contexts; headgate context set NAME --url ADDRESS makes one")
    else:
        rows = [
            ("*" * (name == known.current), name, each.url, each.username)
            for name, each in ((name, known.by_name[name]) for name in names)
        ]
        say(show.table(("CURRENT", "NAME", "ADDRESS", "USER"), rows))


@context.command("show", epilog=example("headgate context show", "headgate context show prod"))
def show_context(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Without it, the current one.", autocompletion=context_names
        ),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Show a context, without its password; and where the commands of this folder go instead."""
    with told():
        known = contexts.read()
        wanted = name or known.current
        if not wanted:
            refuse("no context is current\n  next: headgate context use NAME", code=1)
        known.named(wanted)
    plain = _plain(known, wanted)
    if output is Output.JSON:
        say(show.as_json(plain))
        return
    shown = {**plain, "password": HIDDEN if plain["password"] else "", "current": ""}
    lines = [(key.replace("_", " "), str(value)) for key, value in shown.items() if value]
    width = max(len(key) for key, _ in lines)
    say("\n".join(f"{key.ljust(width)}  {value}" for key, value in lines))
    if wanted == known.current:
        _note_others(wanted)


@context.command("delete", epilog=example("headgate context delete prod"))
def delete_context(name: ContextName) -> None:
    """Delete a context. The cluster is not touched."""
    with told(), contexts.changed() as change:
        known = change.contexts
        known.named(name)
        kept = {each: value for each, value in known.by_name.items() if each != name}
        was_current = known.current == name
        change.contexts = Contexts(kept, "" if was_current else known.current)
    say(f"{name} deleted" + "; no context is current now" * was_current)


def _plain(known: Contexts, name: str) -> dict[str, Any]:
    """Return a context for scripts. Instead of the password it says whether there is one."""
    found = known.by_name[name]
    return {
        "name": name,
        "current": name == known.current,
        "url": found.url,
        "username": found.username,
        "password": bool(found.password),
        "ca_file": found.ca_file,
        "certificate_file": found.certificate_file,
        "key_file": found.key_file,
        "kept_in": str(contexts.path()),
    }


def _note_others(current: str) -> None:
    """Tell the user if commands in this folder are about another cluster than the current
    context."""
    try:
        asked = locate.found(None)
    except RemoteError as error:
        complain(f"note: here commands say: {error}")
        return
    if asked.context != current or asked.source != locate.CURRENT:
        complain(f"note: here commands ask {asked.context or asked.url}, by {asked.source}")


def _address(url: str) -> str:
    with told():
        locate.refuse_wrong(url)
    if url.startswith("unix:"):
        return f"unix:{Path(url.removeprefix('unix:')).expanduser().absolute()}"
    return url.rstrip("/")


def _file(given: str | None) -> str | None:
    """Return the absolute path, since commands are typed in other folders, too."""
    if not given:
        return given
    found = Path(given).expanduser().absolute()
    if not os.access(found, os.R_OK) or found.is_dir():
        refuse(f"{given} cannot be read\n  next: give a file in PEM format")
    return str(found)


def _password(user: str, *, from_input: bool) -> str:
    if from_input:
        found = sys.stdin.readline().rstrip("\r\n")
        if not found:
            refuse(
                "standard input has no password in its first line\n  next: nothing was changed; "
                "give it there, or leave --password-stdin out"
            )
        return found
    if not sys.stdin.isatty():
        refuse(
            f"there is no terminal to ask for the password of {user}\n"
            "  next: give it on standard input, with --password-stdin"
        )
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _check(made: Context) -> None:
    if made.username and not made.url.startswith(("http://", "https://")):
        refuse(f"{made.url} takes no user\n  next: --username is for http:// and https://")
    if made.password and not made.username:
        refuse("a password without a user\n  next: give --username USER, too")
    if made.key_file and not made.certificate_file:
        refuse("a key without a certificate\n  next: give --certificate-file FILE, too")
