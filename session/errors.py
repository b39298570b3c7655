"""The errors of this project, as one tree.

DuplexError
|- ClientError        the client did wrong; the session lives
|  |- MalformedEvent (WrongType, MissingField)  |- BadAudio  |- UnsupportedOption
|  |- IllegalNow (ItemMissing)
|  '- AttachmentError  this socket may not have that session
|     |- ResumeRefused  |- ResumeUnsupported  '- ResumeConflict
|- LimitError         we are full; try later
|  |- AdmissionRefused  |- InputBackpressure
|  '- QuotaExceeded    the owner of this key has had what it may have
|     |- TooManySessions  |- TooManyOpens  '- TooManySecrets
|- ServerDraining     we are about to go away; another server, or this one later
|- StageError         a stage failed; the response fails, the session may live
|  |- StageTimeout  |- StageUnavailable  |- StageRefused  |- StageFailed  '- StageContractBroken
'- LocalProtocolError we did wrong; the session closes and its story is logged

Staleness is not an error: it is a verdict (`session.fence`) and yields nothing but a counter.
"""

from typing import ClassVar


class DuplexError(Exception):
    """Base of every error that can reach a client. Not raised itself."""

    wire_type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        if type(self) is DuplexError:
            raise TypeError("raise a subclass of DuplexError")
        super().__init__(message)
        self.message = message
        self.wire_code = code if code is not None else self.code
        self.param = param

    def __reduce__(self) -> tuple[object, ...]:
        """Keep code and param across a process boundary."""
        return (_rebuild, (type(self), self.message, self.wire_code, self.param))


def _rebuild(kind: type[DuplexError], message: str, code: str, param: str | None) -> DuplexError:
    return kind(message, code=code, param=param)


class ClientError(DuplexError):
    """The client did wrong; nothing has changed and the session lives."""

    wire_type = "invalid_request_error"
    code = "bad_event"


class MalformedEvent(ClientError):
    """Not an event we can read: invalid_json, event_too_large, unknown_event, bad_event."""


class WrongType(MalformedEvent):
    """A value of another JSON type than its field has."""


class MissingField(MalformedEvent):
    """A field that has to be there is not."""

    code = "missing_required_parameter"


class BadAudio(ClientError):
    """The audio can not be decoded: bad_audio, unsupported_audio_format."""

    code = "bad_audio"


class UnsupportedOption(ClientError):
    """An option that this server or model does not have."""

    code = "unsupported_option"


class IllegalNow(ClientError):
    """A well-formed request in the wrong state, such as input_audio_buffer_empty."""

    code = "illegal_now"


class ItemMissing(IllegalNow):
    """No such item in the conversation."""

    code = "item_not_found"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        asked: str = "retrieve",
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.asked = asked
        """What was to be done with it: retrieve, delete or truncate."""


class AttachmentError(ClientError):
    """This socket may not have that session. The session, if there is one, goes on without it."""


class ResumeRefused(AttachmentError):
    """No session, a session that is over, or the wrong token: one answer for all three."""

    code = "session_resume_expired"


class ResumeUnsupported(AttachmentError):
    """Sessions can not be resumed here, or this socket has one already."""

    code = "unsupported_session_resume"


class ResumeConflict(AttachmentError):
    """The client claims to have read events that were never sent."""

    code = "session_resume_conflict"


class LimitError(DuplexError):
    """A server-owned limit is reached; trying later may succeed."""

    wire_type = "rate_limit_error"
    code = "resource_exhausted"
    retryable = True


class AdmissionRefused(LimitError):
    """No session slot is free."""


class InputBackpressure(LimitError):
    """Too much input is waiting to be processed; this input was not taken."""

    code = "input_backpressure"


class QuotaExceeded(LimitError):
    """The client has what the owner of its key may have, while others may have more."""

    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.retry_after_s = retry_after_s
        """After so long it is let in; None: that is not known."""


class TooManySessions(QuotaExceeded):
    """The owner of the key has as many sessions as it may have at once."""

    code = "session_quota_exceeded"


class TooManyOpens(QuotaExceeded):
    """The owner of the key has opened as many sessions within a minute as it may."""


class TooManySecrets(QuotaExceeded):
    """The owner of the key has made as many client secrets within a minute as it may."""


class ServerDraining(DuplexError):
    """No new session begins here: the server is about to go away, or to be restarted."""

    code = "server_draining"
    retryable = True


class StageError(DuplexError):
    """A stage failed."""

    code = "stage_failed"
    survives: ClassVar[bool] = True
    """Whether the session can go on after this error."""


class StageTimeout(StageError):
    """A stage did not answer in time."""

    code = "stage_timeout"
    retryable = True


class StageUnavailable(StageError):
    """The stage's process is gone, or the lease on it has ended."""

    code = "stage_unavailable"
    retryable = True
    survives = False


class StageRefused(StageError):
    """The stage's door refused the call: stale or out of order. Harmless when a cancel raced it."""

    code = "stage_refused"


class StageFailed(StageError):
    """The model failed on this call; other calls are not affected."""


class StageContractBroken(StageError):
    """The stage answered something impossible, or speaks another contract version."""

    code = "runtime_contract_invalid"
    survives = False


class LocalProtocolError(DuplexError):
    """Our own invariant is broken: an illegal transition or a ledger that does not balance."""
