"""What is remembered is what was heard."""

from stages.embedded.conversation import KEPT_ENTRIES, Conversation, Entry, Role


def said(conversation: Conversation) -> list[str]:
    return [entry.text for entry in conversation.entries]


def test_sentences_of_one_answer_are_one_entry() -> None:
    talk = Conversation().user_said("Count.").assistant_said("One.").assistant_said(" Two.")
    assert talk.entries == (Entry(Role.USER, "Count."), Entry(Role.ASSISTANT, "One. Two."))
    assert talk.last_answer == "One. Two."
    assert talk.unanswered == ""


def test_an_interrupted_answer_is_cut_to_what_was_heard() -> None:
    talk = Conversation().user_said("Count.").assistant_said("One. Two. Three.")
    assert said(talk.heard_only("One. Tw ")) == ["Count.", "One. Tw"]
    silent = talk.heard_only(" ")
    assert said(silent) == ["Count."]
    assert silent.unanswered == "Count."


def test_an_interrupt_touches_no_older_answer() -> None:
    talk = Conversation().user_said("Hi.").assistant_said("Hello.").user_said("Count.")
    assert talk.heard_only("") == talk
    cut = talk.assistant_said("One. Two.").heard_only("One.")
    assert said(cut.heard_only("")) == ["Hi.", "Hello.", "Count.", "One."]
    assert cut.user_said("Again.").last_answer == "One."


def test_a_new_turn_begins_a_new_entry() -> None:
    talk = Conversation().user_said("A").assistant_said("B").user_said("C").assistant_said("D")
    assert said(talk) == ["A", "B", "C", "D"]


def test_memory_is_bounded() -> None:
    talk = Conversation()
    for number in range(KEPT_ENTRIES):
        talk = talk.user_said(f"q{number}").assistant_said(f"a{number}")
    assert len(talk.entries) == KEPT_ENTRIES
    assert talk.last_answer == f"a{KEPT_ENTRIES - 1}"
