"""The version of Headgate whose modules a daemon of executors has loaded, and so its children, too.

Looked up once: the standard library lists each archive on the path for that, and PySpark's has
thousands of names. That took 55 ms of CPU of each task.
"""

import importlib.metadata
from typing import Final

VERSION: Final = importlib.metadata.version("headgate")
