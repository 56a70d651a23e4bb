"""Administration: topics, fencing, permissions, and the doctor's questions."""
