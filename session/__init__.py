"""The kernel: what a conversation is. Pure: no I/O, no clock, no tasks, no randomness."""
