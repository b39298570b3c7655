"""Named one-line faults of the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One line of the kernel, done wrong."""

    name: str
    module: str
    line: str
    wrong: str
    by: str = "sim/test_sim.py::test_no_world_breaks_a_law[0]"
    """A test that notices it, below tests/: tried first, since all take ten times as long."""


MUTANTS = [
    Mutant(
        "no fence check",
        "machine.py",
        "if self._state.fence.judge(stimulus.fence) is not FenceVerdict.CURRENT:",
        "if self._state.fence is None:",
    ),
    Mutant(
        "double terminal",
        "answering.py",
        "    state.answered_bytes = state.input.accepted_bytes\n    return [\n",
        "    state.answered_bytes = state.input.accepted_bytes\n    return 2 * [\n",
    ),
    Mutant(
        "lost roll back",
        "ledger/input.py",
        "        self._open.extendleft(reversed(reservation.spans))",
        "        self._open.extendleft(())",
    ),
    Mutant(
        "roll back in the wrong order",
        "ledger/input.py",
        "        self._open.extendleft(reversed(reservation.spans))",
        "        self._open.extend(reservation.spans)",
    ),
    Mutant(
        "reused response id",
        "answering.py",
        'ResponseId(state.ids.new("resp"))',
        'ResponseId("resp_1")',
    ),
    Mutant(
        "acknowledgement beyond what was sent",
        "ledger/playback.py",
        "max(cursor.played_ms, min(played_ms, limit))",
        "max(cursor.played_ms, played_ms)",
    ),
    Mutant(
        "an acknowledgement may go back",
        "ledger/playback.py",
        "max(cursor.played_ms, min(played_ms, limit))",
        "min(played_ms, limit)",
    ),
    Mutant(
        "closed before the release",
        "lifecycle.py",
        "(Life.OPEN, LifeTrigger.CLOSE_ASKED): Life.CLOSING",
        "(Life.OPEN, LifeTrigger.CLOSE_ASKED): Life.CLOSED",
    ),
    Mutant(
        "two units out",
        "pump.py",
        "    if state.append.is_busy:\n        return promoted\n    if state.updates:\n",
        "    if state.updates:\n",
    ),
    Mutant(
        "numbers go on over a cancellation",
        "ledger/append.py",
        "        self.committed_seq = 0",
        "        self.committed_seq += 0",
    ),
    Mutant(
        "unpaired speech at the end",
        "endings.py",
        "    effects = close_open_speech(state)\n    if state.response",
        "    effects: list[Effect] = []\n    if state.response",
    ),
    Mutant(
        "visible before there is output",
        "answering.py",
        "                response.speaking = job\n",
        "                response.speaking = job\n"
        "                effects += show_speaking(state, response)\n",
    ),
    Mutant(
        "history keeps what was not heard",
        "answering.py",
        "        text=heard_text(state, response),\n",
        "        text=response.transcript,\n",
        by="session/test_by_the_clock.py::test_what_was_sent_just_now_has_not_been_heard",
    ),
    Mutant(
        "settings change under a unit that is out",
        "pump.py",
        "    if state.updates:\n        return promoted + start_update(state)\n",
        "",
    ),
    Mutant(
        "a settings generation that no stage was told",
        "on_lifecycle.py",
        "    state.config = candidate\n",
        "    state.config = candidate\n    state.config_generation += 1\n",
    ),
    Mutant(
        "an answer that comes too soon joins the one before",
        "on_stage.py",
        "is Decision.SPEAK and active is not None and active.is_turn_ended\n",
        "is None\n",
        by="session/test_stage_answers.py::"
        "test_an_answer_that_comes_too_soon_waits_for_the_sound_of_the_one_before",
    ),
    Mutant(
        "an answer that waits is forgotten",
        "on_stage.py",
        "    if pending is None or result is None or state.response.active is not None:\n",
        "    if True:\n",
        by="session/test_stage_answers.py::"
        "test_an_answer_that_comes_too_soon_waits_for_the_sound_of_the_one_before",
    ),
    Mutant(
        "deferred overlap is forgotten",
        "pump.py",
        "    if state.response.active is not None or not state.input.has_deferred:\n",
        "    if True:\n",
    ),
    Mutant(
        "a frame goes with the rest of its append",
        "ledger/spans.py",
        "        return replace(self, pcm=self.pcm[:n_bytes]), rest\n",
        "        return replace(self, pcm=self.pcm[:n_bytes], video_frames=()), rest\n",
    ),
    Mutant(
        "a message asks for an answer",
        "ledger/turns.py",
        "turn.is_wanted and turn.message is None for turn",
        "turn.is_wanted for turn",
        by="session/test_messages.py::"
        "test_messages_of_a_cancelled_bare_response_wait_for_what_is_said",
    ),
    Mutant(
        "a message is lost with a unit that fails",
        "ledger/input.py",
        "self.queue.put_back(messages_of(reservation.parts))",
        "self.queue.put_back(())",
    ),
    Mutant(
        "a text overtakes a message",
        "ledger/turns.py",
        "for part in parts[split:] if part.text",
        "for part in parts if part.text",
        by="session/test_messages.py::test_texts_and_messages_stay_in_order",
    ),
    Mutant(
        "an item in between is told last",
        "ledger/turns.py",
        "        self._turns.insert(at, turn)",
        "        self._turns.append(turn)",
        by="session/test_messages.py::test_an_item_in_between_is_told_in_between",
    ),
    Mutant(
        "a request outlives its answer",
        "answering.py",
        "    state.input.queue.drop_request()\n",
        "",
        by="session/test_messages.py::test_a_bare_response_that_has_not_gone_out_does_not_either",
    ),
    Mutant(
        "an answer apart takes what waits along",
        "ledger/turns.py",
        "if request is not None and request.is_fresh:",
        "if request is not None and request.is_fresh and not self._turns:",
        by="session/test_hearing.py::test_what_an_answer_does_not_see_is_not_heard_for_it",
    ),
    Mutant(
        "words of a spoken item are given up before it has gone out",
        "pump.py",
        "    if utterance.is_whole:\n",
        "    if False:\n",
        by="session/test_audio_items.py::"
        "test_the_words_of_an_item_wait_until_the_model_has_heard_it",
    ),
    Mutant(
        "audio that comes back goes behind its item",
        "ledger/input.py",
        "        if reservation.serial != self.open_item.serial:\n",
        "        if False:\n",
        by="session/test_commit_table.py::"
        "test_audio_of_a_committed_item_that_comes_back_goes_before_the_rest_of_it",
    ),
    Mutant(
        "silence goes in front of a rest",
        "pump.py",
        "    if due is not None and now >= due:\n        return ledger.reserve_open",
        "    if due is None:\n        return ledger.reserve_open",
    ),
    Mutant(
        "a new owner inherits the count of silence",
        "ledger/append.py",
        "return self._continuations if owner == self._continued else 0",
        "return self._continuations",
        by="session/test_continuation.py::test_each_answer_has_its_own_count",
    ),
    Mutant(
        "a commit takes the turn that the session has got to",
        "user_items.py",
        "    return target.turn\n",
        "    return state.fence.turn\n",
        by="session/test_commit_table.py::test_an_item_over_an_answer_belongs_to_the_turn_after_it",
    ),
    Mutant(
        "an utterance takes what follows it",
        "on_input.py",
        "    if state.config.auto_response or not any(isinstance(edge, Offset) for edge in edges):",
        "    if True:",
        by="session/test_commit_table.py::test_a_refused_append_keeps_the_place_of_what_follows",
    ),
    Mutant(
        "deferred overlap does not count",
        "ledger/input.py",
        "sum(bool(turn.spans) for turn in self.queue.waiting) + int(self.has_deferred)",
        "sum(bool(turn.spans) for turn in self.queue.waiting)",
        by="session/test_commit_table.py::"
        "test_meaningful_overlap_waits_in_one_piece_for_the_end_of_the_answer",
    ),
    Mutant(
        "cancelled input comes back",
        "on_input.py",
        '    state.input.discard_waiting("cancelled")\n',
        '    state.input.discard_open("cancelled")\n',
    ),
    Mutant(
        "a user who says nothing is asked for ever",
        "idle_user.py",
        "    watch.has_asked = True\n",
        "    watch.has_asked = False\n",
        by="session/test_idle_user.py::test_at_most_once_an_answer[config0]",
    ),
    # --- sockets, the journal, the end: the simulator's part ---------------------------------
    Mutant(
        "replayed twice",
        "outbox.py",
        "for text in self.journal.after(effect.after_seq))",
        "for text in 2 * self.journal.after(effect.after_seq))",
    ),
    Mutant(
        "replayed in the wrong order",
        "ledger/journal.py",
        "return tuple(entry.text for entry in self._entries if entry.seq > seq)",
        "return tuple(entry.text for entry in reversed(self._entries) if entry.seq > seq)",
    ),
    Mutant(
        "replayed from one too early",
        "ledger/journal.py",
        "for entry in self._entries if entry.seq > seq)",
        "for entry in self._entries if entry.seq >= seq)",
    ),
    Mutant(
        "numbers begin again after a resume",
        "outbox.py",
        "        self._attached = effect.attachment\n",
        "        self._attached = effect.attachment\n"
        "        self.journal.newest_seq = effect.after_seq\n",
    ),
    Mutant(
        "trimmed beyond the acknowledgement",
        "ledger/journal.py",
        "while self._entries and self._entries[0].seq <= seq:",
        "while self._entries and self._entries[0].seq <= seq + 1:",
        by="session/test_journal.py::"
        "test_an_acknowledgement_forgets_up_to_its_number_and_no_further",
    ),
    Mutant(
        "an old epoch's delta is sent",
        "outbox.py",
        "return fence is not None and current.judge(fence) is FenceVerdict.STALE",
        "return False",
    ),
    Mutant(
        "an old epoch's delta is kept for replay",
        "outbox.py",
        "        if _is_stale(event, fence):\n            return []\n",
        "        if _is_stale(event, fence):\n"
        "            self._frames(event, at_s, keeps=self._keeps_journal, now=now)\n"
        "            return []\n",
    ),
    Mutant(
        "a terminal is dropped when its epoch is over",
        "events.py",
        "        case SpeakDecided() | SpeechDelta() | ListenDecided():\n            return",
        "        case SpeakDecided() | SpeechDelta() | ListenDecided() | ResponseFinished():\n"
        "            return",
    ),
    Mutant(
        "what waited at the break is lost",
        "outbox.py",
        "                self._write_down(held.popleft(), fence, now)\n",
        "                held.popleft()\n",
    ),
    Mutant(
        "a replaced socket still takes output",
        "outbox.py",
        "while not lane and attachment == self._attached:",
        "while not lane:",
        by="session/test_outbox.py::"
        "test_a_takeover_leaves_the_old_socket_a_farewell_and_nothing_else",
    ),
    Mutant(
        "numbers go on after the overflow",
        "outbox.py",
        "wire_event.is_journaled and not self.journal.is_overflowed",
        "wire_event.is_journaled",
    ),
    Mutant(
        "the token is not changed",
        "ledger/attachment.py",
        "        self._presented = _digest(presented)\n        self.give_token(token)\n",
        "        self._presented = _digest(presented)\n",
    ),
    Mutant(
        "a used token is good again",
        "ledger/attachment.py",
        '        self._presented = b""\n',
        "        self._presented = self._presented\n",
    ),
    Mutant(
        "a new token that was never read shuts its client out",
        "ledger/attachment.py",
        "        self._presented = _digest(presented)\n        self.give_token(token)\n",
        "        self.give_token(token)\n",
    ),
    Mutant(
        "an old attachment is heeded",
        "ledger/attachment.py",
        "return self.current is not None and attachment == self.current",
        "return self.current is not None",
    ),
    Mutant(
        "a closing session is given to a socket",
        "on_attachment.py",
        "if state.life is not Life.OPEN or not state.attachment.is_opened_by(",
        "if not state.attachment.is_opened_by(",
    ),
    Mutant(
        "ended twice",
        "endings.py",
        "    state.release_retry_at_s = None\n    return [] if was_told else _farewell(state)",
        "    state.release_retry_at_s = None\n    return _farewell(state)",
    ),
    Mutant(
        "a failed release is not tried again",
        "endings.py",
        "    state.release_retry_at_s = now + state.limits.reaper_interval_s\n",
        "    state.release_retry_at_s = None\n",
    ),
    Mutant(
        "a failed release frees the slot",
        "lifecycle.py",
        "(Life.CLOSING, LifeTrigger.RELEASE_FAILED): Life.HOLDING",
        "(Life.CLOSING, LifeTrigger.RELEASE_FAILED): Life.CLOSED",
    ),
    Mutant(
        "the end is announced for ever",
        "timers.py",
        "    state.lease.is_end_announced = True\n",
        "",
    ),
    Mutant(
        "a client that is gone keeps its session",
        "timers.py",
        "    return detached_at_s + state.limits.disconnect_grace_s\n",
        "    return None\n",
    ),
    Mutant(
        "settings under way are lost with their epoch",
        "answering.py",
        "        state.updates[0] = replace(state.updates[0], generation=None)\n",
        "        state.updates[0] = replace(state.updates[0])\n",
    ),
    Mutant(
        "deferred overlap stays deferred when it is promoted",
        "ledger/input.py",
        "        turn, self._deferred = self._deferred, None\n",
        "        turn = self._deferred\n",
    ),
    Mutant(
        "silence while samples wait",
        "pump.py",
        "    return due if over_s is None else max(due, over_s)\n",
        "    return due\n",
    ),
    Mutant(
        "the last silence leaves the answer open",
        "on_stage.py",
        "    if result.turn_end or continuations_spent(state):\n",
        "    if result.turn_end:\n",
    ),
    Mutant(
        "a wanted turn goes before those that came earlier",
        "ledger/turns.py",
        "        parts = [self._turns.popleft() for _ in range(self._wanted_length())]\n",
        "        parts = [turn for turn in self._turns if turn.is_wanted]\n"
        "        self._turns = deque(turn for turn in self._turns if not turn.is_wanted)\n",
    ),
    Mutant(
        "words that were told leave their id to what follows",
        "on_stage.py",
        "        state.input.open_item.item_id = None  #",
        "        pass  #",
    ),
    Mutant(
        "words are given up before the model has the end of the speech",
        "pump.py",
        "    return utterance.end_byte > told_byte",
        "    return False",
        by="session/test_utterances.py::"
        "test_words_belong_to_speech_whose_end_waited_behind_a_busy_model",
    ),
    Mutant(
        "what is only heard is answered",
        "pump.py",
        "    asks = turn is not None and not reservation.is_heard_only\n",
        "    asks = turn is not None\n",
        by="session/test_hearing.py::test_what_is_committed_is_heard_and_answered_later",
    ),
    Mutant(
        "what is said is heard before what was written",
        "ledger/turns.py",
        "        if at is None or not self._turns[at].spans:\n",
        "        if at is None:\n",
        by="session/test_hearing.py::test_what_was_written_before_is_told_with_all_that_was_said",
    ),
    Mutant(
        "a stale stimulus moves the clock of playback",
        "machine.py",
        "        effects = self._dispatch(stimulus, now)\n",
        "        note_played(self._state, now)\n        effects = self._dispatch(stimulus, now)\n",
        by="sim/test_sim.py::test_no_world_breaks_a_law[5]",
    ),
    Mutant(
        "what was dropped is heard later",
        "ledger/playback.py",
        "        return not self.is_flushed and self.committed_ms < self.sent_ms\n",
        "        return self.committed_ms < self.sent_ms\n",
    ),
    Mutant(
        "a lenient update changes what the model can not",
        "on_lifecycle.py",
        "    return fitted(after, before, state.profile) if is_lenient else after\n",
        "    return after\n",
        by="session/test_fitting.py::test_a_lenient_update_is_never_refused_and_says_what_holds",
    ),
    Mutant(
        "an id that was promised to speech may be taken",
        "on_item.py",
        "return state.history.get(item_id) is not None or is_promised(state, item_id)",
        "return state.history.get(item_id) is not None",
    ),
    Mutant(
        "a session that only finishes speaking goes on hearing",
        "state.py",
        "        return self.life in (Life.OPENING, Life.OPEN) and self.drain is None\n",
        "        return self.life in (Life.OPENING, Life.OPEN)\n",
        by="session/test_drain.py::test_what_the_user_says_meanwhile_is_not_heard",
    ),
    Mutant(
        "what finishes speaking may take for ever",
        "endings.py",
        "    if _says_something(state, now) and now < drain.until_s:\n",
        "    if _says_something(state, now):\n",
        by="session/test_drain.py::test_an_answer_that_does_not_end_is_cut_off_in_time",
    ),
    Mutant(
        "a drain cuts whoever speaks",
        "leaving.py",
        "    return state.detector is not None and state.detector.is_speaking\n",
        "    return False\n",
        by="session/test_leaving.py::test_speech_in_a_quiet_moment_begins_the_pause_anew",
    ),
    Mutant(
        "a drain waits for ever for what only the client can do",
        "leaving.py",
        "    pause_s = CLIENT_WITHIN_S if any(lull.owed) else ",
        "    if any(lull.owed):\n        return None\n    pause_s = ",
        by="session/test_leaving.py::test_what_waits_for_an_answer_holds_it",
    ),
    Mutant(
        "a drain does not wait for a client that may come back",
        "leaving.py",
        "    if state.attachment.detached_at_s is not None or _user_speaks(state):\n",
        "    if _user_speaks(state):\n",
        by="session/test_leaving.py::test_without_a_client_it_waits_as_long_as_its_grace",
    ),
    Mutant(
        "a drain may take for ever",
        "leaving.py",
        "    if leaving.until_s <= now:\n",
        "    if leaving.until_s < 0:\n",
    ),
    Mutant(
        "speech that is held back outlives its epoch",
        "outbox.py",
        "            is_dropped = _is_stale(content, fence)\n",
        "            is_dropped = False\n",
        by="session/test_pacing.py::test_the_next_answer_follows_what_the_client_still_plays",
    ),
    Mutant(
        "a comment over the user's speech",
        "on_context.py",
        "    if state.speech_item_id is not None:\n        return None\n",
        "",
        by="session/test_stream.py::test_a_comment_waits_while_the_user_speaks",
    ),
    Mutant(
        "input is counted behind what it leads to",
        "on_input.py",
        "    effects = _count_frames(state, before + len(append.pcm))\n",
        "    effects = _count_frames(state, before)\n",
        by="session/test_stream.py::test_input_is_counted_in_whole_frames",
    ),
]
