"""``headgate init``: a commented pipeline file that runs, to begin from."""

from pathlib import Path

EXAMPLE = """\
# A pipeline for: headgate up {name}
# What may stand here: docs/run/pipeline.md. A look without a start: headgate up {name} --check

[cluster]
workers = 1                   # processes that share the work
runner = "process"            # where tasks run: "process", "thread" or "spark"
data = "state"                # folder of the log: offsets and records, made at the first start

# A source reads, and writes records to a topic. headgate plugins lists all classes,
# headgate plugins DirectorySource the options of one.
[connectors.events]
"connector.class" = "DirectorySource"
path = "in"                   # reads every JSON Lines, CSV, Parquet and text file below it
topic = "events"
"tasks.max" = 1               # how many tasks share the files
# include = "*.jsonl"         # only these
# "errors.tolerance" = "all"  # skip and count what cannot be read, in place of failing

# A sink reads topics, and writes what is in them.
[connectors.copy]
"connector.class" = "FileStreamSink"
topics = "events"
file = "out.txt"

# Secrets do not belong into this file. Refer to them:
# password = "${{env:PASSWORD}}" or "${{file:/run/secrets.properties:password}}"
"""
SAMPLE = '{"id": 1, "name": "Ada"}\n{"id": 2, "name": "Grace"}\n'
FOLDER = "in"


class InitError(Exception):
    """Nothing was made. The message is for the user."""


def make_pipeline(path: Path) -> list[Path]:
    """Make the file, and beside it a folder with two records if there is none. Return what was
    made.

    Raises:
        InitError: the file exists, or the disk refuses.
    """
    folder = path.parent / FOLDER
    made = [path]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(EXAMPLE.format(name=path.name))
        if not folder.exists():
            folder.mkdir()
            (folder / "example.jsonl").write_text(SAMPLE, encoding="utf-8")
            made.append(folder / "example.jsonl")
    except FileExistsError:
        raise InitError(f"{path} is there already, and is left as it is; name another") from None
    except OSError as error:
        raise InitError(f"{error.filename}: {error.strerror}") from None
    return made
