"""A unit on its way in and on its way out: bytes to whole seconds, a thought to Stage0's answer."""

import hashlib
from typing import Final

from session.ids import RequestId
from session.unit import SAMPLE_BYTES, Decision, SegmentMetrics, UnitResult
from stages.contract import Appended, Speech
from stages.minicpmo.mel import UNIT_SAMPLES
from stages.minicpmo.ports import Thought

UNIT_BYTES: Final = UNIT_SAMPLES * SAMPLE_BYTES


def whole_seconds(pcm: bytes) -> bytes:
    """Return the audio with silence behind it up to a whole second, and at least one."""
    missing = -len(pcm) % UNIT_BYTES if pcm else UNIT_BYTES
    return pcm + bytes(missing)


def seed_of(request_id: RequestId) -> int:
    """Return what the unit's random draws begin from; another attempt draws anew."""
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def answer(
    thought: Thought, text: str, request_id: RequestId, *, is_start: bool, is_over: bool
) -> Appended:
    """Return what Stage0 says of a unit.

    `text` is what the unit shows of the answer's. `is_start` is whether an answer would start with
    it, `is_over` whether one has ended in it: the model that listens has nothing more to say.
    """
    ended, timing = thought.ended, thought.timing
    metrics = SegmentMetrics(
        ttft_ms=timing.ttft_ms,
        tpot_ms=timing.tpot_ms,
        itls_ms=timing.itls_ms,
        generated_tokens=timing.generated_tokens,
        queued_ms=timing.queued_ms,
    )
    if ended.is_listen:
        result = UnitResult(Decision.LISTEN, turn_end=is_over, metrics=metrics)
        return Appended(result, None, request_id)
    result = UnitResult(
        Decision.SPEAK,
        text,
        has_speech=True,
        segment_end=True,
        turn_end=is_over,
        metrics=metrics,
    )
    speech = Speech(
        text,
        segment_end=True,
        turn_end=is_over,
        token_ids=ended.condition,
        hidden=thought.hidden[1:],
        turn_start=is_start,
    )
    return Appended(result, speech, request_id)
