"""``headgate observe``: a cluster of workers, Java's or ours, seen from outside."""
