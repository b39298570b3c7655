"""What the service promises. Alerts fire beyond these, and dashboards draw them as lines."""

from typing import Final

FIRST_AUDIO_P50_S: Final = 1.2
FIRST_AUDIO_P95_S: Final = 2.0
DEADLINE_MISSES: Final = 0.005
BARGE_IN_STOP_P95_S: Final = 0.3
UNDERRUNS: Final = 0.01
RESUME_FAILURES: Final = 0.005
SPEECH_FACTOR: Final = 1.0
# What follows is where looking is worth while, not a promise.
UNIT_LAG_P95_S: Final = 1.0
LOOP_DELAY_P99_S: Final = 0.1
FAILED_RESPONSES: Final = 0.01
NOT_OPENED: Final = 0.01
REFUSED_SESSIONS: Final = 0.05
WRONG_KEYS_PER_S: Final = 1.0
FREE_SLOTS: Final = 0.1
KV_USED: Final = 0.95
LAG_RATIO: Final = 3.0
JAIN: Final = 0.8
UNFAIR_FROM_P99_S: Final = 0.25
"""Where units take no longer, nobody notices that one session's take the longest."""
