"""The garbage collector, set for what our processes do: records come and go by the batch, and
hardly any of them is part of a cycle."""

import gc

YOUNG_MAX = 50_000
"""Objects made and not yet dropped before the collector looks for cycles among them: several
batches of records. Python's own 700 are a tenth of one batch, and cost a source task a quarter of
its CPU; 50,000 of them hold some megabytes."""


def settle() -> None:
    """To be called when a process has loaded its modules: what there is now stays, and is not
    looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 10, 10)
