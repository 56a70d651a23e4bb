"""``headgate up --check``: the checks before a start. It starts, makes and changes nothing."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from headgate.errors import MissingExtraError
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate_runtime.command.errors import EXIT_USAGE, UpError
from headgate_runtime.up.apply import planned_changes
from headgate_runtime.up.display import counted
from headgate_runtime.up.forecast import at_least_once, notes_of
from headgate_runtime.up.pipeline import Pipeline
from headgate_runtime.up.references import resolved

DATABASE = "headgate.db"
HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables by which Spark finds a YARN cluster."""
_WORDS = {"making": "would make", "changing": "would change", "deleting": "would delete"}


def run(pipeline: Pipeline, *, prune: bool = False, out: TextIO | None = None) -> int:
    """Print what a start would find and do. Return the exit code: 0, or 2 if it could not start.
    The file itself is valid, or `load` would have refused it.

    Raises:
        UpError: the data folder holds no log of ours.
    """
    shown = out or sys.stdout
    faults = [*spark_faults(pipeline), *_java_faults(pipeline)]
    state, topics = _log(pipeline)
    for line in _lines(pipeline, state, topics, prune=prune):
        print(line, file=shown)
    for line in faults:
        print(f"fault: {line}", file=shown)
    if faults:
        return EXIT_USAGE
    print(f"{pipeline.file.name} is right; nothing was started", file=shown)
    return 0


def _lines(
    pipeline: Pipeline, state: ConfigState | None, topics: Sequence[str], *, prune: bool
) -> Iterator[str]:
    workers = counted(pipeline.workers, "worker")
    connectors = counted(len(pipeline.connectors), "connector")
    yield f"{workers}, runner {pipeline.runner}, {connectors}"
    if state is None:
        yield f"data folder {pipeline.data}: will be made at the first start"
    else:
        yield f"data folder {pipeline.data}: has {counted(len(state.entries), 'connector')}"
    plan, notes = planned_changes(state or ConfigState(), pipeline.connectors, prune=prune)
    for change in plan:
        verb, _, rest = change.words.partition(" ")
        yield f"  {_WORDS[verb]} {rest}"
    yield from (f"  {note}" for note in notes)
    entries = state.entries.items() if state is not None else ()
    there = {name: entry.config for name, entry in entries if entry.config}
    configs = {name: resolved(each) for name, each in {**there, **pipeline.connectors}.items()}
    yield from notes_of(pipeline, configs, topics)
    yield from at_least_once(pipeline, configs)


def _log(pipeline: Pipeline) -> tuple[ConfigState | None, Sequence[str]]:
    """Return the state and the topics of the log, read only. The state is None if there is no log
    yet."""
    from headgate_embedded import RefusedError, open_reader

    if not (pipeline.data / DATABASE).exists():
        return None, ()
    try:
        reader = open_reader(pipeline.data, once=True)
    except RefusedError as error:
        raise UpError(str(error)) from None
    try:
        state, position = ConfigState(), 0
        while True:
            records, position = reader.config_log.read(position)
            if not records:
                return state, reader.record_log.topic_names()
            state = fold(state, [decode(each.offset, each.key, each.value) for each in records])
    finally:
        reader.close()


def spark_faults(pipeline: Pipeline) -> Iterator[str]:
    """Yield what would keep Spark from starting, as far as it shows without a start."""
    if pipeline.runner != "spark":
        return
    if importlib.util.find_spec("pyspark") is None:
        yield f'{MissingExtraError("spark")} (runner is spark; "process" needs nothing more)'
        return
    if pipeline.spark.remote is not None:
        return
    master = pipeline.spark.master or ""
    if master.startswith("yarn") and not any(os.environ.get(name) for name in HADOOP):
        names = ", ".join(HADOOP)
        yield f"[spark] master is {master}, which needs one of {names} in the environment"


def _java_faults(pipeline: Pipeline) -> Iterator[str]:
    """Yield what is wrong with the Java for a Spark of our own. A start finds that by itself."""
    ours = pipeline.runner == "spark" and pipeline.spark.remote is None
    if not ours or importlib.util.find_spec("pyspark") is None:
        return
    from headgate_spark.server import ServerError, check_java

    try:
        check_java()
    except ServerError as error:
        yield str(error)
