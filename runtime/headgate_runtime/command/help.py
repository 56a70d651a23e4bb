"""The look of ``--help``: commands in groups, with one example each to be typed. Also the
suggestions for an unknown word."""

import re
from collections.abc import Mapping
from typing import Any, Final

import typer.core

RUN = "Run connectors"
LOOK = "Look at what there is"
WRITE = "Write connectors"
STUDY = "Study the protocol (for scripts)"

PIPELINE: Final = "pipeline.toml"
"""The pipeline file of a command that is given none."""


NEVER_OFFERED: Final = frozenset({"--prune", "delete", "reset"})
"""Options and commands that delete. A mistyped word never gets them as a suggestion."""
CHECKS: Final = frozenset(
    {"--check", "--diff", "--dry-run", "--dryrun", "--no-start", "--validate", "--verify"}
)
"""Options by which commands here and in other tools only look."""
_LOOKS: Final[Mapping[str, str]] = {
    "headgate up": "--check",
    "headgate apply": "--diff",
    "headgate connectors apply": "--dry-run",
    "headgate connectors delete": "--dry-run",
}
"""For each command, the option by which it only looks."""
_LIST: Final = "headgate connectors list shows the connectors, headgate status the workers, too"
_SHOW: Final = "headgate connectors show NAME has config, states and traces"
_APPLY: Final = "headgate connectors apply FILE creates and changes connectors"
_TASKS: Final = "headgate connectors show NAME lists the tasks"
_OFFSETS: Final = "headgate offsets show NAME"
_WORKERS: Final = "headgate status shows the workers of a cluster"
_DELETE: Final = "headgate connectors delete NAME deletes it; headgate offsets reset its offsets"
_RESUME: Final = "headgate connectors resume NAME runs it again"
_CONTEXT: Final = "headgate context set, use, list, show and delete are for names of clusters"
_SET: Final = "headgate context set NAME --url ADDRESS makes or changes one"
_CURRENT: Final = "headgate context show shows the current one"
_SEE: Final = ("detail", "details", "info", "inspect", "see", "state", "view")
_OPERATE: Final = "headgate connectors {} is for connectors of a running cluster"
MEANT: Final[Mapping[str, Mapping[str, str]]] = {
    "headgate": {
        "check": "headgate up FILE --check checks a pipeline file",
        "validate": "headgate up FILE --check checks a pipeline file",
        "run": "headgate up runs a pipeline file",
        "start": "headgate up runs a pipeline file",
        **dict.fromkeys(("get", "list", "ls", "ps"), _LIST),
        **dict.fromkeys(("describe", "show"), _SHOW),
        "logs": "headgate up writes the logs of its workers to logs/ in its data folder",
        **{
            word: _OPERATE.format(word)
            for word in ("create", "delete", "edit", "patch", "pause", "restart", "resume")
        },
        **{word: _OPERATE.format(word) for word in ("diff", "stop", "wait", "watch")},
        **dict.fromkeys(("cluster", "nodes", "top", "workers"), _WORKERS),
        **dict.fromkeys(("remove", "rm"), _DELETE),
        "down": "Ctrl-C or SIGTERM ends headgate up, and the next one goes on from there",
        "version": "headgate --version shows it",
        **dict.fromkeys(("config", "contexts", "login"), _CONTEXT),
        "info": _WORKERS,
    },
    "connectors": {
        **dict.fromkeys(("get", "describe", "status", "config", "tasks", *_SEE), _SHOW),
        **dict.fromkeys(("put", "set", "update"), _APPLY),
        **dict.fromkeys(("del", "destroy", "drop", "remove", "rm"), _DELETE),
        **dict.fromkeys(("start", "unpause"), _RESUME),
        **dict.fromkeys(("log", "logs"), f"{_SHOW}; more is in the logs of its workers"),
        "scale": "headgate connectors patch NAME tasks.max=4 changes how many tasks it may have",
        "validate": "headgate connectors diff FILE... says what is wrong with configs",
    },
    "context": {
        **dict.fromkeys(("add", "create", "new", "set-context", "update"), _SET),
        **dict.fromkeys(("get", "get-contexts", "ls"), "headgate context list shows them"),
        **dict.fromkeys(("current", "current-context", "describe"), _CURRENT),
        **dict.fromkeys(("select", "switch", "use-context"), "headgate context use NAME"),
        **dict.fromkeys(
            ("remove", "remove-context", "rm", "unset"), "headgate context delete NAME forgets it"
        ),
    },
    "loggers": dict.fromkeys(
        ("get", "ls", "show"), "headgate loggers list shows the loggers and their levels"
    ),
    "tasks": dict.fromkeys(("get", "list", "ls", "show", "status", *_SEE), _TASKS),
    "offsets": {
        **dict.fromkeys(("describe", "get", "list", "ls", *_SEE), f"{_OFFSETS} shows them"),
        **dict.fromkeys(
            ("alter", "patch", "restore", "rewind", "seek"),
            "headgate offsets set NAME FILE changes them",
        ),
    },
}
"""Other tools' words for commands, and our commands for them, by group. They come before words that
only look similar. So a user who wants to see something is not led to a change."""
FILES_AS: Final = frozenset({"-f", "--file", "--filename"})
"""Options with which other tools take files. Here files are arguments."""
OPTIONS_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(FILES_AS, "files are given without it"),
    **dict.fromkeys(("-w", "--watch"), "headgate connectors watch prints each change"),
    **dict.fromkeys(("-y", "--yes", "--force"), "nothing is asked, so it is not needed"),
    **dict.fromkeys(
        ("-A", "--all-namespaces", "-n", "--namespace"), "connectors have no namespaces"
    ),
}
"""Options of other tools for commands on a cluster, and what to type instead."""
_OPERATED: Final = frozenset({"apply", "connectors", "loggers", "offsets", "status", "tasks"})
AFTER: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--url", "--server", "-s"), "headgate status --url ADDRESS"),
    "--context": "headgate status --context NAME",
    **dict.fromkeys(("--output", "-o"), "headgate connectors list -o json"),
}
"""Options that other tools take before the command."""
_CHOICE: Final = re.compile(r"(?:Value error, )?'(.*)' is not one of ('.*')\.")
"""The message for a value that is not among an option's choices. A library's prefix may precede
it."""
_OFFERED: Final = re.compile(r" Did you mean (.*)\?")
_NEW: Final = "headgate connector new begins a project for a connector"


class Guessing(typer.core.TyperGroup):
    """A group that suggests commands of its neighbour group, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            word = args[0] if args else ""
            meant = MEANT.get("headgate" if ctx.parent is None else ctx.info_name, {}).get(word)
            hint = meant or _hint(ctx, word)
            message = _harmless(getattr(error, "message", ""))
            if meant:
                message = message.partition(" Did you mean")[0]
            error.message = message  # type: ignore[attr-defined]
            if hint and "Did you mean" not in message:
                error.message = f"{message} {hint.rstrip('.')}."  # type: ignore[attr-defined]
            raise


def _hint(ctx: Any, word: str) -> str:
    """Return what to type in place of an unknown command."""
    if ctx.parent is None:
        return ""
    beside = {"connector": "connectors", "connectors": "connector"}.get(ctx.info_name)
    group = ctx.parent.command.commands.get(beside) if beside else None
    if group is None or word not in group.commands:
        return ""
    return f"{_NEW if beside == 'connector' else _OPERATE.format(word)}."


def _harmless(message: str) -> str:
    """Return `message` without the commands that are never suggested."""
    found = _OFFERED.search(message)
    if found is None:
        return message
    kept = [word for word in re.findall(r"'(.*?)'", found[1]) if word not in NEVER_OFFERED]
    near = ", ".join(f"'{word}'" for word in kept)
    return message[: found.start()] + (f" Did you mean {near}?" if kept else "")


def _choice(message: str) -> str:
    """Return `message`. If it is about a value outside an option's choices, the nearest one is
    added."""
    found = _CHOICE.fullmatch(message)
    if found is None:
        return message
    from headgate.connector.nearest import nearest  # --help need not load it

    choices = re.findall(r"'(.*?)'", found[2])
    near = nearest(found[1], choices)
    meant = f"; did you mean {near}?" if near else ""
    return f"{found[1]!r}, expected one of {', '.join(choices)}{meant}"


class Commands(Guessing):
    """The commands under the headings above, in the order of their definition."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            after = AFTER.get(getattr(error, "option_name", ""))
            if after is not None:
                error.message += f"; it stands after the command: {after}."  # type: ignore[attr-defined]
                error.possibilities = []  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            asked, offered = (getattr(error, k, None) for k in ("option_name", "possibilities"))
            if asked is not None:
                kept = [option for option in offered or () if option not in NEVER_OFFERED]
                path = getattr(getattr(error, "ctx", None), "command_path", "")
                if asked in CHECKS and path in _LOOKS:
                    kept = [_LOOKS[path]]
                operated = ctx.invoked_subcommand in _OPERATED
                if asked in FILES_AS or (operated and asked in OPTIONS_MEANT):
                    kept = []
                    error.message += f"; {OPTIONS_MEANT[asked]}."  # type: ignore[attr-defined]
                error.possibilities = kept  # type: ignore[attr-defined]
            elif _names_given_to_list(ctx, error):
                error.message += f". {_SHOW}."  # type: ignore[attr-defined]
            elif hasattr(error, "message"):
                error.message = _choice(error.message)
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            first = " ".join((command.help or "").partition("\n\n")[0].split())
            groups.setdefault(command.rich_help_panel, []).append((name, first))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


def _names_given_to_list(ctx: Any, error: Exception) -> bool:
    """Return whether `error` is about arguments of `headgate connectors list`, which takes none."""
    command = getattr(getattr(error, "ctx", None), "info_name", "")
    extra = str(getattr(error, "message", "")).startswith("Got unexpected extra argument")
    return extra and (ctx.invoked_subcommand, command) == ("connectors", "list")


def example(*lines: str) -> str:
    """Return an epilog with lines to be typed. ``\\b`` keeps the parser from rewrapping the
    lines."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(("\b", heading, *(f"  {line}" for line in lines)))
