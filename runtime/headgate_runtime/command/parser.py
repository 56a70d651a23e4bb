"""The commands of ``headgate``. Each imports what it needs, so that ``--help`` is quick.

Exit codes: 0 all is well; 1 the pipeline (or the script's input) failed; 2 wrong usage or a
refused pipeline file; 130 ended by a second Ctrl-C. What is the user's to mend is said in words, on
standard error, without a traceback.
"""

import contextlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from headgate_runtime.command import launch

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="headgate",
    help="A connector runtime that speaks Kafka Connect's protocols.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headgate {importlib.metadata.version('headgate')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A connector runtime that speaks Kafka Connect's protocols."""


@app.command()
def up(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE.toml", help="What to run: docs/run/pipeline.md.")
    ],
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="End once every source has nothing more to read and every sink has caught up.",
        ),
    ] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Add workers to a cluster that is up already.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that the file no longer names.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines, as where there is no terminal.")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            metavar="FILE.svg",
            help="At the end, draw who owned what when (.svg or .png).",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there."),
    ] = None,
) -> None:
    """Start the workers of a pipeline, apply its connectors, and show what runs where."""
    from headgate_runtime.up.pipeline import PipelineError, load

    if timeline is not None and timeline.suffix not in (".svg", ".png"):
        _refuse(f"--timeline {timeline}: expected a name that ends with .svg or .png")
    try:
        loaded = load(pipeline)
    except PipelineError as error:
        count = len(error.problems)
        lines = "\n".join(f"  {problem.show(error.file)}" for problem in error.problems)
        what = "1 fault" if count == 1 else f"{count} faults"
        _refuse(f"nothing was started, the pipeline file has {what}:\n{lines}")
    from headgate_runtime.command.errors import UpError
    from headgate_runtime.up.command import UpOptions, run

    options = UpOptions(until_idle, join, prune, plain, timeline, metrics)
    try:
        code = run(loaded, options)
    except UpError as error:
        _refuse(str(error), error.exit_code)
    raise typer.Exit(code)


@app.command()
def worker(
    properties: Annotated[
        str,
        typer.Argument(metavar="FILE.properties", help="As Connect's: docs/run/kafka.md."),
    ],
) -> None:
    """Run one distributed worker on Kafka."""
    launch.worker(properties)


@app.command()
def standalone(
    properties: Annotated[
        str,
        typer.Argument(metavar="WORKER.properties", help="As Connect's: docs/run/kafka.md."),
    ],
    connectors: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONNECTOR...]", help="Connectors: properties or JSON files."),
    ] = None,
) -> None:
    """Run one worker without a group: data on Kafka, source offsets in a file."""
    launch.standalone(properties, connectors or [])


@app.command()
def plugins() -> None:
    """List the connector classes that are installed."""
    from headgate_runtime.plugins.find import PluginError, available, connector_kind, find_connector

    found = available()
    width = max((len(name) for name in found), default=0)
    for name, target in found.items():
        try:
            connector = find_connector(name)
        except PluginError as error:
            typer.echo(f"{name:<{width}}  cannot be used: {error}")
            continue
        needs = f", runner {connector.REQUIRES_RUNNER} only" if connector.REQUIRES_RUNNER else ""
        typer.echo(f"{name:<{width}}  {connector_kind(connector)}{needs}  {target}")


@app.command()
def replay(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A dumped config topic, JSON Lines; - for stdin.")
    ],
) -> None:
    """Print the state that a dumped config topic ends in, as one JSON object."""
    from headgate_runtime.command.replay import ReplayInputError
    from headgate_runtime.command.replay import replay as replayed

    try:
        with _opened(file) as lines:
            answer = replayed(lines, fast_parser())
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    except UnicodeDecodeError as error:
        _refuse(f"{file}: not a text in UTF-8: byte {error.start}", EXIT_FAILED)
    except ReplayInputError as error:
        _refuse(f"{file}: {error}", EXIT_FAILED)
    typer.echo(json.dumps(answer, ensure_ascii=False))


@app.command()
def assign(
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="connect, eager or kip415.")
    ],
) -> None:
    """Read rounds of a group from standard input, one JSON object per line; answer each."""
    from headgate_runtime.command.assign import AssignError, assign_lines

    try:
        for answer in assign_lines(policy, sys.stdin):
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
    except AssignError as error:
        _refuse(str(error), EXIT_FAILED)
    except UnicodeDecodeError as error:
        _refuse(f"standard input is not a text in UTF-8: byte {error.start}", EXIT_FAILED)


@app.command()
def observe(
    bootstrap_servers: Annotated[
        str | None,
        typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="The brokers."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="ID", help="The workers' group.id.")
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option(
            "--properties",
            metavar="FILE",
            help="A worker's properties: brokers, group, topics and security as it has them.",
        ),
    ] = None,
    config_topic: Annotated[
        str | None, typer.Option("--config-topic", help="If it cannot be told by what is in it.")
    ] = None,
    status_topic: Annotated[str | None, typer.Option("--status-topic", help="Likewise.")] = None,
    offset_topic: Annotated[str | None, typer.Option("--offset-topic", help="Likewise.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object (docs/run/commands.md).")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Look again and again, until Ctrl-C.")
    ] = False,
) -> None:
    """Show a cluster of workers on Kafka, Java's or ours: who owns what, and what is wrong.

    Reads only: it joins nothing and writes nothing.
    """
    from headgate_runtime.observe.command import ObserveError, ObserveOptions, run

    topics = {"config": config_topic, "status": status_topic, "offset": offset_topic}
    named = {kind: name for kind, name in topics.items() if name}
    options = ObserveOptions(bootstrap_servers, group, properties, named, as_json, follow)
    try:
        run(options)
    except ObserveError as error:
        _refuse(str(error))


@app.command()
def doctor(
    file: Annotated[
        str, typer.Argument(metavar="FILE.properties", help="A worker's properties file.")
    ],
) -> None:
    """Check a worker's properties against its cluster: brokers, topics, permissions, offsets."""
    from headgate_runtime.command.doctor import run
    from headgate_runtime.config.properties import PropertiesError
    from headgate_runtime.config.worker_file import WorkerFileError

    try:
        code = run(file)
    except (PropertiesError, WorkerFileError) as error:
        _refuse(str(error))
    raise typer.Exit(code)


def fast_parser() -> Callable[[bytes], Any] | None:
    """orjson's, where it is installed."""
    try:
        import orjson
    except ImportError:
        return None
    return orjson.loads


@contextlib.contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdin
        return
    with Path(file).open(encoding="utf-8", newline="\n") as lines:
        yield lines


def _refuse(message: str, code: int = EXIT_USAGE) -> NoReturn:
    typer.echo(f"headgate: {message}", err=True)
    raise typer.Exit(code)
