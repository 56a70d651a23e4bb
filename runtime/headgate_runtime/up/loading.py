"""A pipeline file for a command: read, or the end of the command with all that is wrong in it."""

import typer

from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.up.pipeline import Pipeline, PipelineError, load


def loaded(pipeline: str, not_done: str = "started") -> Pipeline:
    """The pipeline of a file. `not_done`: what has not been done where it is refused."""
    try:
        return load(pipeline)
    except PipelineError as error:
        count = len(error.problems)
        lines = "\n".join(f"  {problem.show(error.file)}" for problem in error.problems)
        what = "1 fault" if count == 1 else f"{count} faults"
        text = f"nothing was {not_done}, the pipeline file has {what}:\n{lines}"
        typer.echo(f"headgate: {text}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
