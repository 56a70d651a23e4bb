"""The commands of ``headgate``. Each imports what it needs, so that ``--help`` is quick.

Exit codes: 0 all is well; 1 the pipeline (or the script's input) failed; 2 wrong usage or a
refused pipeline file; 130 ended by a second Ctrl-C. What is the user's to mend is said in words, on
standard error, without a traceback.
"""

import contextlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from headgate_runtime.command import launch
from headgate_runtime.command.connector import register as register_connector
from headgate_runtime.command.errors import EXIT_FAILED, EXIT_USAGE, UpError
from headgate_runtime.command.extras import require
from headgate_runtime.command.help import LOOK, PIPELINE, RUN, STUDY, Commands, example
from headgate_runtime.remote.apply import register as register_apply
from headgate_runtime.remote.commands import register as register_remote
from headgate_runtime.remote.locate import VARIABLE
from headgate_runtime.remote.options import Format, Output, Url


class PluginKind(StrEnum):
    SOURCE = "source"
    SINK = "sink"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


app = typer.Typer(
    name="headgate",
    cls=Commands,
    epilog=example(
        "headgate up pipeline.toml --until-idle   # copy what there is, then end",
        "headgate plugins DirectorySource         # the options of a connector",
        "headgate COMMAND --help                  # options and an example of a command",
    ),
    no_args_is_help=True,
    add_completion=True,
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
    """Run connectors: sources that read files and services, and sinks that write them.

    They run on one machine with a log of their own, or on Kafka, where workers speak Kafka
    Connect's protocols.
    """


@app.command(
    rich_help_panel=RUN,
    epilog=example("headgate up pipeline.toml --until-idle"),
)
def up(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE.toml", help="Workers and connectors: see docs/run/pipeline.md."
        ),
    ] = PIPELINE,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="End when every source has read all there is and every sink has written it.",
        ),
    ] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Add workers to a cluster that another 'up' runs.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that are not in the file.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines instead of a table that is redrawn.")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            metavar="FILE.svg",
            help="At the end, draw which worker ran what and when. Needs headgate[plots].",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve metrics for Prometheus. Needs headgate[rest].",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check what is checked before a start; start nothing.")
    ] = False,
) -> None:
    """Run a pipeline on this machine, without Kafka.

    Starts the workers of the pipeline file, creates its connectors, and shows what runs where.
    Ctrl-C stops it. The next start goes on where it was.
    """
    _can_be_served(timeline, metrics)
    from headgate_runtime.up.check import run as checked
    from headgate_runtime.up.command import UpOptions, run
    from headgate_runtime.up.loading import loaded

    wanted = loaded(pipeline)
    try:
        options = UpOptions(until_idle, join, prune, plain, timeline, metrics)
        code = checked(wanted, prune=prune) if check else run(wanted, options)
    except UpError as error:
        _refuse(str(error), error.exit_code)
    raise typer.Exit(code)


def _can_be_served(timeline: Path | None, metrics: str | None) -> None:
    if timeline is not None and timeline.suffix not in (".svg", ".png"):
        _refuse(f"--timeline {timeline}: expected a name that ends with .svg or .png")
    if timeline is not None:
        require("matplotlib")  # which draws it, when all is done
    if metrics is not None:
        require("prometheus_client")


@app.command(rich_help_panel=RUN, epilog=example("headgate init"))
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file to make.")] = Path(
        "pipeline.toml"
    ),
) -> None:
    """Make a pipeline file that runs, with comments, to begin from.

    Where there is no folder named in beside it, that is made too, with a file to read.
    """
    from headgate_runtime.command.init import InitError, make_pipeline

    try:
        made = make_pipeline(file)
    except InitError as error:
        _refuse(f"nothing was made: {error}")
    typer.echo(f"made {', '.join(map(str, made))}\n\n  headgate up {file} --until-idle")


@app.command(
    rich_help_panel=RUN,
    epilog=example("headgate worker connect-distributed.properties"),
)
def worker(
    properties: Annotated[
        str,
        typer.Argument(
            metavar="FILE.properties",
            help="Settings, with the names of Kafka Connect: see docs/run/kafka.md.",
        ),
    ],
) -> None:
    """Run one worker of a group on Kafka.

    It joins the Connect group that the file names, Java workers included, and serves Connect's
    REST API at its listeners. With headgate.grpc.listeners=grpc://HOST:PORT it serves gRPC, too.
    The commands take either address: headgate status --url. Needs headgate[kafka].
    """
    launch.worker(properties)


@app.command(
    rich_help_panel=RUN,
    epilog=example("headgate standalone connect-standalone.properties my-source.properties"),
)
def standalone(
    properties: Annotated[
        str,
        typer.Argument(
            metavar="WORKER.properties",
            help="Settings, with the names of Kafka Connect: see docs/run/kafka.md.",
        ),
    ],
    connectors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONNECTOR", help="Files with connector configs: properties or JSON."
        ),
    ] = None,
) -> None:
    """Run one worker on Kafka without a group.

    Records go to Kafka. Source offsets are kept in a file. Needs headgate[kafka].
    """
    launch.standalone(properties, connectors or [])


register_remote(app)
register_apply(app)


@app.command(
    rich_help_panel=LOOK,
    epilog=example(
        "headgate plugins",
        "headgate plugins DirectorySource --search csv",
        "headgate plugins --type sink",
        "headgate plugins --url http://127.0.0.1:8083   # of a running worker",
        "headgate plugins --local   # although HEADGATE_URL is set",
    ),
)
def plugins(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A class, by a name that connector.class takes: its options."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value instead of text.")
    ] = False,
    kinds: Annotated[
        list[PluginKind] | None,
        typer.Option("--type", help="List only these; may be given repeatedly."),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="REGEX",
            help="Only options whose name or meaning matches, in capitals or not.",
        ),
    ] = "",
    url: Url = None,
    local: Annotated[
        bool,
        typer.Option("--local", help=f"Look at what is installed here, whatever {VARIABLE} says."),
    ] = False,
) -> None:
    """List the connectors that are installed here or in a running worker, or the options of one.

    NAME may also be the class of a transform, predicate or converter. A worker is asked only if
    --url, --context or HEADGATE_URL names one.
    """
    if local and url not in (None, os.environ.get(VARIABLE)):
        _refuse("--local looks here, and --url asks a worker: give one of them")
    if kinds and name:
        _refuse("--type is for the list: give it without NAME")
    if search and not name:
        _refuse("--search looks through the options of one class: give its NAME")
    try:
        pattern = re.compile(search, re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        _refuse(f"--search {search}: no regular expression: {error}")
    types = [each.value for each in kinds or ()]
    if url and not local:
        from headgate_runtime.remote.commands import plugins as of_a_worker

        of_a_worker(name, url, as_json=as_json, kinds=types, search=pattern)
    else:
        _plugins_here(name, types, pattern, as_json=as_json)


def _plugins_here(
    name: str | None, types: list[str], search: re.Pattern[str], *, as_json: bool
) -> None:
    from headgate_runtime.plugins.describe import as_text, describe, listed, listed_text
    from headgate_runtime.plugins.find import PluginError

    if name is None:
        typer.echo(json.dumps(listed(types), ensure_ascii=False) if as_json else listed_text(types))
        return
    try:
        one = describe(name).matching(search)
    except PluginError as error:
        _refuse(str(error))
    typer.echo(json.dumps(one.plain(), ensure_ascii=False) if as_json else as_text(one))


@app.command(
    rich_help_panel=LOOK,
    epilog=example("headgate doctor connect-distributed.properties"),
)
def doctor(
    file: Annotated[
        str, typer.Argument(metavar="FILE.properties", help="The settings of a worker.")
    ],
) -> None:
    """Check the settings of a worker against its Kafka.

    Tries brokers, logins, topics, permissions and offsets, and says what to do about each fault.
    Needs headgate[kafka].
    """
    from headgate_runtime.command.doctor import run
    from headgate_runtime.config.properties import PropertiesError
    from headgate_runtime.config.worker_file import WorkerFileError

    try:
        code = run(file)
    except (PropertiesError, WorkerFileError) as error:
        _refuse(str(error))
    raise typer.Exit(code)


@app.command(
    rich_help_panel=LOOK,
    epilog=example("headgate observe --bootstrap-servers localhost:9092 --group connect-cluster"),
)
def observe(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.properties",
            help="A worker's file: take brokers, group, topics and security from it.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka's brokers."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="ID", help="The workers' group.id.")
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option(
            "--properties",
            metavar="FILE",
            help="The same as FILE.properties.",
        ),
    ] = None,
    config_topic: Annotated[
        str | None,
        typer.Option(
            "--config-topic", metavar="TOPIC", help="The workers' config topic, if not found."
        ),
    ] = None,
    status_topic: Annotated[
        str | None,
        typer.Option("--status-topic", metavar="TOPIC", help="Their status topic, if not found."),
    ] = None,
    offset_topic: Annotated[
        str | None,
        typer.Option("--offset-topic", metavar="TOPIC", help="Their offsets topic, if not found."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: see docs/run/commands.md.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show every change, until Ctrl-C.")
    ] = False,
) -> None:
    """Show a group of workers on Kafka: which worker runs what, and what is wrong.

    The workers may be Java's or Headgate's. The command only reads: it joins no group and writes
    nothing. Needs headgate[kafka].
    """
    from headgate_runtime.observe.command import ObserveError, ObserveOptions, run

    topics = {"config": config_topic, "status": status_topic, "offset": offset_topic}
    named = {kind: name for kind, name in topics.items() if name}
    if file is not None and properties is not None:
        _refuse(f"two files of a worker are given, {file} and {properties}: give one")
    found = file or properties
    try:
        run(ObserveOptions(bootstrap_servers, group, found, named, as_json, follow))
    except ObserveError as error:
        _refuse(str(error))


register_connector(app)


@app.command(
    rich_help_panel=STUDY,
    epilog=example("headgate replay config-topic.jsonl"),
)
def replay(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Lines of JSON with offset, key and value. - reads standard input."
        ),
    ],
    worker: Annotated[
        bool,
        typer.Option(
            "--worker", help="FILE is a worker's journal (headgate.journal): print its decisions."
        ),
    ] = False,
) -> None:
    """Print what a dumped config topic amounts to, or what a worker's journal decided.

    For a config topic the answer is one JSON object: connectors, their configs and tasks, and what
    must be fenced. For a journal it is a line for each command. See docs/run/commands.md.
    """
    if worker:
        _replay_journal(file)
        return
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


def _replay_journal(file: str) -> None:
    from headgate.herder.journal import JournalError
    from headgate_runtime.command.journal import decisions

    try:
        with _opened(file) as lines:
            for line in decisions(lines):
                sys.stdout.write(f"{line}\n")
    except BrokenPipeError:
        raise  # whoever read our output has gone
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    except UnicodeDecodeError as error:
        _refuse(f"{file}: not a text in UTF-8: byte {error.start}", EXIT_FAILED)
    except JournalError as error:
        _refuse(f"{file}: {error}", EXIT_FAILED)


@app.command(
    rich_help_panel=STUDY,
    epilog=example("headgate assign --policy kip415 < rounds.jsonl"),
)
def assign(
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="connect (as Java's workers do now), eager, or kip415 (as KIP-415 says).",
        ),
    ],
) -> None:
    """Compute which worker gets which connectors and tasks.

    Reads the rounds of a group from standard input, one JSON object per line, and answers each with
    one line. See docs/run/commands.md.
    """
    from headgate_runtime.command.assign import AssignError, assign_lines

    try:
        for answer in assign_lines(policy, sys.stdin):
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
    except AssignError as error:
        _refuse(str(error), EXIT_FAILED)
    except UnicodeDecodeError as error:
        _refuse(f"standard input is not a text in UTF-8: byte {error.start}", EXIT_FAILED)


@app.command(
    rich_help_panel=STUDY,
    epilog=example(
        "headgate simulate crash.toml",
        "headgate simulate crash.toml --seed 12        # another run",
        "headgate simulate crash.toml --runs 100       # medians, and the worst with its seed",
    ),
)
def simulate(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY.toml",
            help="A cluster and what happens to it: see docs/build/simulation.md.",
        ),
    ],
    seed: Annotated[
        int, typer.Option("--seed", metavar="NUMBER", min=0, help="Delays are drawn from it.")
    ] = 1,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", metavar="COUNT", min=1, help="Run with as many seeds, from --seed on."
        ),
    ] = None,
    output: Format = Output.TABLE,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show each message of the group protocol, too.")
    ] = False,
) -> None:
    """Simulate the rebalances of a cluster, in virtual time.

    Runs the group protocol and the herders that ship, without tasks that move records. Prints a
    timeline and a summary. The same study and seed print the same. Examples are in
    examples/simulation.
    """
    if trace and runs is not None:
        _refuse("--trace shows one run, and --runs many: give one of them")
    from headgate.simulation.checks import InvariantBroken
    from headgate_runtime.command.simulate import many_runs, one_run
    from headgate_runtime.command.study_file import StudyFileError, load_study

    as_json = output is Output.JSON
    try:
        wanted = load_study(study)
        if runs is None:
            lines = one_run(wanted, seed, trace=trace, as_json=as_json)
        else:
            lines = many_runs(wanted, seed, runs, as_json=as_json)
        for line in lines:
            sys.stdout.write(f"{line}\n")
    except StudyFileError as error:
        _refuse(str(error))
    except InvariantBroken as error:
        _refuse(f"Headgate broke a rule of its own, which is a fault: {error}", EXIT_FAILED)


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
