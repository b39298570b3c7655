"""The errors a user of the client can meet, as one tree.

DuplexClientError
|- DuplexUnreachable    no connection could be made
|- DuplexRefused        the server answered, and said no before the session was open
|- RequestRefused       the server refused one request; the session lives
|- AnswerTimedOut       the server did not answer in time
|- DuplexDisconnected   the connection ended before the session did, and did not come back
|- EventsMissed         what somebody waited for may have been lost in a gap; the session lives
|- ResumeRefused        the server does not let the client come back to its session
|- SessionOver          the session has ended properly; there is nothing more to come
|- BadServerEvent       the server sent something that is not an event
|- EventBacklogFull     the program stopped taking events and the bound was reached
'- EventsNotKept        the program asked for events that it had let pass
"""


class DuplexClientError(Exception):
    """Base of every error of this package."""


class DuplexUnreachable(DuplexClientError):
    """No connection could be made; trying later may succeed."""


class DuplexRefused(DuplexClientError):
    """The server refused the session before it was open."""

    def __init__(self, code: str, message: str, *, retryable: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable


class RequestRefused(DuplexClientError):
    """The server answered one request with an error; the session lives."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class AnswerTimedOut(DuplexClientError):
    """The server did not answer a request in time."""


class DuplexDisconnected(DuplexClientError):
    """The connection ended without `session.closed` or `session.expired`."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(
            f"disconnected with close code {close_code}: {reason or 'no reason given'}"
        )
        self.close_code = close_code
        self.reason = reason


class EventsMissed(DuplexClientError):
    """What somebody waited for when the connection was lost may have been among the lost events."""

    def __init__(self, first_seq: int, last_seq: int) -> None:
        super().__init__(
            f"the server no longer had events {first_seq} to {last_seq} after a lost connection, "
            "and what you waited for may have been among them; the session goes on, so ask again"
        )
        self.first_seq = first_seq
        self.last_seq = last_seq


class ResumeRefused(DuplexClientError):
    """The connection was lost, and the server refused to let the client come back."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"the session can not be taken up again: {code}: {message}")
        self.code = code
        self.message = message


class SessionOver(DuplexClientError):
    """The session has ended for this client: it was closed, it expired, or another took it over."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the session is over: {reason}")
        self.reason = reason


class BadServerEvent(DuplexClientError):
    """The server sent a frame that is not a JSON object with a `type`."""


class EventBacklogFull(DuplexClientError):
    """The program began to iterate the client's events and then stopped taking them."""


class EventsNotKept(DuplexClientError):
    """Iteration began so late that earlier events had been let go."""
