"""The ledgers: each keeps one partition of a session's facts, with its own invariant, and knows no other."""
