"""Arrow's form of Connect's data: types, values, and batches of rows. Needs pyarrow.

It serves no port, so connectors and the embedded log may use it too; they import it where they
meet Arrow data. What needs pyarrow is in the modules, none of it here.
"""
