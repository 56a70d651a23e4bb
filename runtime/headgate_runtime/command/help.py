"""How ``--help`` looks: commands in groups, one example for each, as it is to be typed."""

from typing import Any

import typer.core

RUN = "Run connectors"
LOOK = "Look at what there is"
WRITE = "Write connectors"
STUDY = "Study the protocol (for scripts)"


class Commands(typer.core.TyperGroup):
    """The commands under the headings above, in the order of their definition."""

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
