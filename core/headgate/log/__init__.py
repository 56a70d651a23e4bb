"""Records as a log stores them: their columns, and their retention."""
