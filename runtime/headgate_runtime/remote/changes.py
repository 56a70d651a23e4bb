"""``headgate connectors pause``, ``resume``, ``stop``, ``restart`` and ``delete``."""

from typing import Annotated

import typer

from headgate.ids import TargetState
from headgate_runtime.command.help import example
from headgate_runtime.remote import selecting, show
from headgate_runtime.remote.connectors import connectors
from headgate_runtime.remote.options import Names, RegExp, Url, remote_at
from headgate_runtime.remote.remote import Remote


def register() -> None:
    """Add the commands to those of ``headgate connectors``."""
    several = "headgate connectors pause -e 'orders-.*'"
    connectors.command(epilog=example("headgate connectors pause orders", several))(pause)
    connectors.command(epilog=example("headgate connectors resume orders"))(resume)
    connectors.command(epilog=example("headgate connectors stop orders"))(stop)
    failed = "headgate connectors restart orders --tasks --only-failed"
    connectors.command(epilog=example(failed))(restart)
    several = "headgate connectors delete -e 'test-.*'"
    connectors.command(epilog=example("headgate connectors delete orders", several))(delete)


def pause(names: Names, reg_exp: RegExp = False, url: Url = None) -> None:
    """Pause connectors and their tasks."""
    _set_target_states(names, TargetState.PAUSED, "paused", url, reg_exp=reg_exp)


def resume(names: Names, reg_exp: RegExp = False, url: Url = None) -> None:
    """Resume paused or stopped connectors."""
    _set_target_states(names, TargetState.STARTED, "resumed", url, reg_exp=reg_exp)


def stop(names: Names, reg_exp: RegExp = False, url: Url = None) -> None:
    """Stop connectors: they keep their configs and give up their tasks."""
    _set_target_states(names, TargetState.STOPPED, "stopped", url, reg_exp=reg_exp)


def restart(
    names: Names,
    include_tasks: Annotated[bool, typer.Option("--tasks", help="Restart the tasks, too.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Restart only what has failed.")
    ] = False,
    reg_exp: RegExp = False,
    url: Url = None,
) -> None:
    """Restart connectors, and their tasks if you say so."""
    selecting.each(
        names,
        lambda remote, name: remote.restart(
            name, include_tasks=include_tasks, only_failed=only_failed
        ),
        "restarted",
        url,
        reg_exp=reg_exp,
    )


def delete(
    names: Names,
    reg_exp: RegExp = False,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="With --reg-exp: delete without a question.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
    url: Url = None,
) -> None:
    """Delete connectors. Their offsets stay. Whole names are deleted without a question, as by
    kubectl. With --reg-exp, what would be deleted is shown first, and you are asked."""
    with remote_at(url) as remote:
        found = selecting.selected(remote, names, reg_exp=reg_exp)
        if dry_run:
            selecting.all_of(remote, found, _would_be_deleted, between=": ")
            return
        if reg_exp and not yes:
            count = f"{len(found)} connectors" if len(found) > 1 else "1 connector"
            selecting.confirm(remote, found, f"delete {count} at {remote.where}?")
        selecting.all_of(remote, found, _deleted)


def _would_be_deleted(remote: Remote, name: str) -> str:
    row = remote.row(name)
    return f"{row.type}, {show.state(row)}, tasks: {show.tasks(row)}; would be deleted (dry run)"


def _deleted(remote: Remote, name: str) -> str:
    remote.delete(name)
    return "deleted"


def _set_target_states(
    names: list[str], state: TargetState, word: str, url: str | None, *, reg_exp: bool
) -> None:
    def change(remote: Remote, name: str) -> None:
        remote.set_target_state(name, state)

    selecting.each(names, change, word, url, reg_exp=reg_exp)
