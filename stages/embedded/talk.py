"""Where a session's talk stands between two units, and what the next answer is about.

Rule 1: what a unit tells is kept until the next answer begins, and remembered from then on.
Rule 2: an answer apart from the conversation sees what came with it and nothing else. After it, or
        when it is interrupted, the conversation is what it was before.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from session.config import AnswerSettings
from session.context import ContextMessage
from session.tools import ToolOutput
from session.unit import Unit
from stages.embedded.conversation import Conversation
from stages.embedded.hearing import Heard
from stages.embedded.tool_outputs import say_outputs

MOST_QUESTION_CHARS: Final = 4000
"""What is longer is cut; a spoken question is never that long."""

_SESSIONS_OWN: Final = AnswerSettings()


@dataclass(frozen=True, slots=True)
class Topic:
    """What an answer is about."""

    conversation: Conversation
    options: AnswerSettings = _SESSIONS_OWN
    outputs: tuple[ToolOutput, ...] = ()
    """What functions returned, where that is all there is to say."""
    awaits_words: bool = False
    """The words are what is to be repeated."""
    may_call: bool = True
    """No function has been called about the same words."""
    kept: Conversation | None = None
    """What will be remembered instead of `conversation` once the answer is over."""

    @property
    def words(self) -> str:
        """What the user wants an answer to; empty when the answer is to nothing."""
        return "" if self.outputs else self.conversation.unanswered


@dataclass(frozen=True, slots=True)
class Talk:
    """Where a session's talk stands between two units."""

    conversation: Conversation = field(default_factory=Conversation)
    unfinished: str = ""
    """Words of an utterance that still goes on."""
    question: str = ""
    """What the user said and has got no answer to yet."""
    notes: tuple[ContextMessage, ...] = ()
    """Messages that came with units since the last answer began."""
    outputs: tuple[ToolOutput, ...] = ()
    """What functions returned and nobody has been told."""
    apart: Unit | None = None
    """Asks for an answer that sees nothing else."""
    awaits_words: bool = False
    """The user asked for a repetition; the words to repeat come next."""
    has_called: bool = False
    """The last answer was a function call."""
    units_in_turn: int = 0
    options: AnswerSettings | None = None
    """Settings of the next answer alone; None: the session's."""
    kept: Conversation | None = None
    """What will be remembered instead of `conversation` once an out-of-band answer is over."""

    def told(self, unit: Unit, heard: Heard) -> "Talk":
        """Take what a unit brings."""
        if unit.is_fresh:
            return replace(self, apart=unit, unfinished=heard.unfinished)
        parts = (self.question, heard.words, unit.text)
        question = " ".join(part.strip() for part in parts if part.strip())
        return replace(
            self,
            question=question[:MOST_QUESTION_CHARS],
            unfinished=heard.unfinished,
            notes=(*self.notes, *unit.messages),
            outputs=(*self.outputs, *unit.tool_outputs),
            options=unit.options or self.options,
        )

    def is_due(self, unit: Unit, *, answers_by_itself: bool) -> bool:
        """Whether an answer begins with this unit."""
        if self.apart is not None:
            return True
        if not (unit.closes_input or answers_by_itself):
            return False
        if self.question or self.outputs or unit.is_bare:
            return True
        # A close without audio asks for an answer to what was said before, if that has got none.
        waits = self.conversation.unanswered and not unit.pcm
        return unit.closes_input and bool(waits or Conversation().told(self.notes).unanswered)

    def topic(self) -> Topic:
        """Return what the next answer is about."""
        if self.apart is not None:
            return _apart(self.apart, self.conversation)
        options = self.options or _SESSIONS_OWN
        conversation, outputs = self.conversation.told(self.notes), self.outputs
        if self.question:
            conversation = conversation.told(_as_notes(outputs)).user_said(self.question)
            outputs = ()
        return Topic(
            conversation,
            options,
            outputs,
            self.awaits_words,
            may_call=bool(self.question or self.notes) or not self.has_called,
            kept=conversation if options.is_out_of_band else None,
        )

    def begun(
        self, topic: Topic, *, awaits_words: bool = False, has_called: bool = False
    ) -> "Talk":
        """Begin the answer to the topic."""
        if self.apart is not None:
            return replace(self, conversation=topic.conversation, apart=None, kept=topic.kept)
        return replace(
            self,
            conversation=topic.conversation,
            question="",
            notes=(),
            outputs=(),
            awaits_words=awaits_words,
            has_called=has_called,
            options=None,
            kept=topic.kept,
        )

    def over(self) -> "Talk":
        """End the answer that has begun: no more of it is said."""
        conversation = self.conversation if self.kept is None else self.kept
        return replace(self, conversation=conversation, kept=None, units_in_turn=0, options=None)

    def said(self, text: str, *, is_last: bool) -> "Talk":
        """Add a sentence to the answer."""
        conversation, kept = self.conversation.assistant_said(text), self.kept
        if is_last and kept is not None:
            conversation, kept = kept, None
        return replace(
            self,
            conversation=conversation,
            kept=kept,
            units_in_turn=0 if is_last else self.units_in_turn + 1,
        )

    def interrupted(self, heard: str, *, cuts_answer: bool) -> "Talk":
        """Drop what was to be answered. The user heard only `heard` of the answer so far."""
        conversation = self.kept or self.conversation
        return replace(
            self,
            conversation=conversation.heard_only(heard) if cuts_answer else conversation,
            question="",
            notes=(*self.notes, *_as_notes(self.outputs)),
            outputs=(),
            apart=None,
            units_in_turn=0,
            options=None,
            kept=None,
        )


def _apart(unit: Unit, conversation: Conversation) -> Topic:
    own = Conversation().told(unit.messages)
    if unit.text:
        own = own.user_said(unit.text[:MOST_QUESTION_CHARS])
    # The last answer stays as it was heard: an interruption is about the one that begins now.
    return Topic(own, unit.options or _SESSIONS_OWN, kept=conversation.closed())


def _as_notes(outputs: tuple[ToolOutput, ...]) -> tuple[ContextMessage, ...]:
    return tuple(
        ContextMessage("system", f"A function returned: {' '.join(say_outputs((each,)))}")
        for each in outputs
    )
