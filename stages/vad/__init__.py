"""Voice activity detection, shared by all sessions of a process."""
