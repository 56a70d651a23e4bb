"""Records as a log keeps them: their columns, and how long they stay."""
