"""How ``--help`` looks: commands in groups, one example for each, as it is to be typed. And what is
offered in place of a word that is none of ours."""

from collections.abc import Mapping
from typing import Any, Final

import typer.core

RUN = "Run connectors"
LOOK = "Look at what there is"
WRITE = "Write connectors"
STUDY = "Study the protocol (for scripts)"


NEVER_OFFERED: Final = frozenset({"--prune"})
"""Options that delete: who mistypes another one is not led to them."""
CHECKS: Final = frozenset({"--dry-run", "--dryrun", "--validate", "--verify", "--no-start"})
"""Options by which other tools only look."""
MEANT: Final[Mapping[str, str]] = {
    "check": "headgate up FILE --check checks a pipeline file",
    "validate": "headgate up FILE --check checks a pipeline file",
    "run": "headgate up runs a pipeline file",
    "start": "headgate up runs a pipeline file",
}
"""Commands that others have, and ours."""
_NEW: Final = "headgate connector new begins a project for a connector"
_OPERATE: Final = "headgate connectors {} is for connectors of a running cluster"


class Guessing(typer.core.TyperGroup):
    """Offers commands of the group beside this one, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            hint = _hint(ctx, args[0] if args else "")
            message = getattr(error, "message", "")
            if hint and "Did you mean" not in message:
                error.message = f"{message} {hint}"  # type: ignore[attr-defined]
            raise


def _hint(ctx: Any, word: str) -> str:
    """What is to be typed in place of a command that is none."""
    if ctx.parent is None:
        return f"{MEANT[word]}." if word in MEANT else ""
    beside = {"connector": "connectors", "connectors": "connector"}.get(ctx.info_name)
    group = ctx.parent.command.commands.get(beside) if beside else None
    if group is None or word not in group.commands:
        return ""
    return f"{_NEW if beside == 'connector' else _OPERATE.format(word)}."


class Commands(Guessing):
    """The commands under the headings above, in the order of their definition."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            asked, offered = (getattr(error, k, None) for k in ("option_name", "possibilities"))
            if asked is not None:
                kept = [option for option in offered or () if option not in NEVER_OFFERED]
                if asked in CHECKS and ctx.invoked_subcommand == "up":
                    kept = ["--check"]
                error.possibilities = kept  # type: ignore[attr-defined]
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


def example(*lines: str) -> str:
    """An epilog with lines to be typed. ``\\b`` keeps the parser from filling the lines anew."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(("\b", heading, *(f"  {line}" for line in lines)))
