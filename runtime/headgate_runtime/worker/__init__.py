"""One worker: the loop around its herder, and what performs the herder's effects."""
