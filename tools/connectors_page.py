"""Writes docs/run/connectors.md from the definitions of the connectors' options.

.venv/bin/python tools/connectors_page.py            # write it
.venv/bin/python tools/connectors_page.py --check    # exit code 1 if it is out of date
"""

import sys
from pathlib import Path

from headgate_runtime.plugins.describe import as_page

PAGE = Path(__file__).resolve().parents[1] / "docs/run/connectors.md"
CONNECTORS = (
    "DirectorySource",
    "DirectorySink",
    "FileStreamSource",
    "FileStreamSink",
    "DeltaSource",
    "DeltaSink",
    "IcebergSource",
    "IcebergSink",
    "SparkSource",
    "SparkSink",
    "SparkFileSink",
)
INTRODUCTION = """\
# Options of the connectors

<!-- Written by tools/connectors_page.py from the connectors' definitions: do not edit. -->

`headgate plugins NAME` prints the same for one connector, also for one that you installed yourself.
All values are texts. In a [pipeline file](pipeline.md) numbers and booleans need no quotes.
The `name` of a connector is the name of its table there.

- *default*: what holds if the option is not given. "required": it must be given.
- A list is a text with commas. A class is the name of a Python or Java class.
- Each transform and predicate has options of its own, below `transforms.ALIAS.` and
  `predicates.ALIAS.`. `headgate plugins` prints those, too: give it the class.
"""


def main() -> int:
    page = as_page(CONNECTORS, INTRODUCTION)
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
