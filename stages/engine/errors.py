"""How the engine refuses and fails.

Every one of them can cross a process boundary, and every one but `EngineDied` and `EngineFailed`
leaves the session, its memory and all other sessions as they were.
"""

from session.errors import AdmissionRefused, StageFailed, StageRefused, StageUnavailable


class EngineFull(AdmissionRefused):
    """No slot, or not enough memory, is left for one more session."""


class NotOpen(StageRefused):
    """The session is not open, is closing, or is open already."""


class Busy(StageRefused):
    """The session's memory can not be replaced while a segment of it runs."""


class SegmentCancelled(StageRefused):
    """The segment was cancelled; the session's memory is as before it."""


class BadSegment(StageFailed):
    """The segment can not be fed; the engine was not asked."""

    code = "bad_segment"


class MemoryFull(StageFailed):
    """The session would remember more than was reserved for it; the engine was not asked."""

    code = "memory_full"


class SegmentFailed(StageFailed):
    """The engine refused or broke off the segment; the session's memory is as before it."""


class WorkerFailed(StageFailed):
    """A method that was called in the engine's worker failed."""


class EngineFailed(StageUnavailable):
    """The engine could not be started."""


class EngineDied(StageUnavailable):
    """The engine is dead, stuck or stopped; nothing of it can be used any more."""

    code = "engine_died"
