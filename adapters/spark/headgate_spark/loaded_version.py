"""The version of Headgate whose modules a daemon on executors, and so its children, have loaded.

It is looked up once. For a lookup the standard library lists each archive on the path, and
PySpark's has thousands of names. That took 55 ms of CPU for each task.
"""

import importlib.metadata
from typing import Final

VERSION: Final = importlib.metadata.version("headgate")
