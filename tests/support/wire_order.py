"""The events of a spoken answer, in the order that the wire promises."""

SPOKEN_ENDS = [
    "response.audio.done",
    "response.audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
]
"""From the last chunk to the end."""

ANSWER = [
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.speak",
    *["response.audio.delta", "response.audio_transcript.delta"] * 3,
    *SPOKEN_ENDS,
]
"""A whole answer of three chunks."""
