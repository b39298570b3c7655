"""The ledgers: each keeps one partition of a session's facts and knows no other."""
