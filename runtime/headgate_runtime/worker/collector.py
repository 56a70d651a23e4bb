"""Settings of the garbage collector for our processes. Records come and go by the batch, and hardly
any of them is part of a cycle."""

import gc

YOUNG_MAX = 50_000
"""Objects made and not yet dropped before the collector looks for cycles among them: several
batches of records. Python's own 700 are a tenth of one batch, and cost a source task a quarter of
its CPU. 50,000 objects hold some megabytes."""


def settle() -> None:
    """Set the collector, when a process has loaded its modules. The objects that exist now stay,
    and are not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 10, 10)
