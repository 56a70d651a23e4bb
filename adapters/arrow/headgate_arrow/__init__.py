"""Arrow's form of Connect data: types, values, and batches of rows. It needs pyarrow.

It implements no port, so connectors and the embedded log may use it too. They import it when they
get Arrow data. Only the modules import pyarrow, and not this file.
"""
