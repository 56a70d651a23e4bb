"""Changes of several connectors, selected by names or by regular expressions over all names."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import typer

from headgate.connector.nearest import nearest
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote import show
from headgate_runtime.remote.options import (
    EXIT_LATE,
    complain,
    refuse,
    remote_at,
    say,
)
from headgate_runtime.remote.remote import LISTED, LateError, RefusedError, Remote, RemoteError

Answer = TypeVar("Answer")
EXIT_NONE: Final = 1
"""Exit code if no connector has such a name, or nothing was confirmed."""


def selected(remote: Remote, names: Sequence[str], *, reg_exp: bool) -> list[str]:
    """Return the names, each once. With `reg_exp`, return the sorted names of all connectors that
    one of `names` matches as a whole.

    Raises:
        RemoteError: nothing matches.
    """
    if not reg_exp:
        return list(dict.fromkeys(names))
    patterns = [_pattern(each) for each in names]
    known = [row.name for row in remote.rows()]
    found = [name for name in known if any(each.fullmatch(name) for each in patterns)]
    if not found:
        near = [name for name in known if any(each.search(name) for each in patterns)]
        hint = f"; it has to match a whole name, as '.*{names[0]}.*' does" * bool(near)
        raise RemoteError(
            f"no connector matches {', '.join(names)}\n  next: {LISTED}{hint}", EXIT_NONE
        )
    return found


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        hint = "; '.*' stands for any letters" * text.startswith("*")
        raise RemoteError(
            f"{text!r} is no regular expression: {error}\n  next: nothing was asked; mend it{hint}",
            EXIT_USAGE,
        ) from None


def each(
    names: Sequence[str],
    change: Callable[[Remote, str], None],
    word: str,
    url: str | None,
    *,
    reg_exp: bool = False,
) -> None:
    """Change each connector, and say that it is now `word`."""

    def changed(remote: Remote, name: str) -> str:
        change(remote, name)
        return word

    with remote_at(url) as remote:
        all_of(remote, selected(remote, names, reg_exp=reg_exp), changed)


def all_of(
    remote: Remote,
    names: Sequence[str],
    change: Callable[[Remote, str], str],
    between: str = " ",
) -> None:
    """Change each connector, and print the outcome: its name, `between`, and the text from
    `change`. Raises what `ask_each` returns."""

    def changed(name: str, word: str) -> None:
        say(f"{name}{between}{word}")

    trouble = ask_each(remote, names, lambda name: change(remote, name), changed)
    if trouble is not None:
        raise trouble


def ask_each(
    remote: Remote,
    names: Sequence[str],
    ask: Callable[[str], Answer],
    heard: Callable[[str, Answer], None],
) -> RemoteError | typer.Exit | None:
    """Ask for each name, and pass on each answer. A refusal does not stop the others, nor does a
    wait that was in vain.

    Returns:
        How the command ends once it has shown the answers. None: all were answered. It is the exit
            code if some were refused, which was printed before. It is the error of a cluster that
            no longer answers, with the names that were not asked.
    """
    code = 0
    for at, name in enumerate(names):
        try:
            with offering(remote, name):
                answer = ask(name)
        except (RefusedError, LateError) as error:
            complain(str(error) if _names(str(error), name) else f"{name}: {error}")
            late = isinstance(error, LateError)
            code = (code or EXIT_LATE) if late else error.exit_code
        except RemoteError as error:
            left = ", ".join(names[at + 1 :])
            text = f"{name}: {error}" if len(names) > 1 else str(error)
            return RemoteError(text + f"\n  not asked: {left}" * bool(left), error.exit_code)
        else:
            heard(name, answer)
    return typer.Exit(code) if code else None


def _names(text: str, name: str) -> bool:
    """Return whether the first line of `text` names this connector or task. A name may be an
    English word, or a part of another name."""
    whole = rf"(?:^|\b[Cc]onnector:? |\b[Tt]ask:? ){re.escape(name)}(?![\w/-]|\.\w)"
    return re.search(whole, text.partition("\n")[0]) is not None


@contextlib.contextmanager
def offering(remote: Remote, name: str) -> Iterator[None]:
    """Suggest the nearest name if there is no connector of this name."""
    try:
        yield
    except RefusedError as error:
        text, found, listed = str(error).partition("\n  next: " + LISTED)
        near = nearest(name, [row.name for row in remote.rows()]) if found else None
        if near is None:
            raise
        meant = f"{text}; did you mean {near}?{found}{listed}"
        raise RefusedError(meant, error.exit_code) from None


def confirm(remote: Remote, names: Sequence[str], question: str) -> None:
    """Show the connectors, and go on only if the user says yes."""
    wanted = set(names)
    rows = [row for row in remote.rows() if row.name in wanted]
    typer.echo(show.connectors(rows), err=True)
    if not on_terminal():
        refuse(
            f"there is no terminal to ask: {question}\n  next: nothing was changed; say --yes",
            EXIT_USAGE,
        )
    if not typer.confirm(question, err=True):
        refuse("nothing was changed", EXIT_NONE)


def on_terminal() -> bool:
    """Return whether a user can answer questions."""
    return sys.stdin.isatty()
