"""The events of a spoken answer of three chunks, in the order that the wire promises."""

ANSWER = [
    "response.created",
    "conversation.item.added",
    "conversation.item.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.speak",
    *["response.audio.delta", "response.audio_transcript.delta"] * 3,
    "response.audio.done",
    "response.audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
    "rate_limits.updated",
]
