"""What MiniCPM-o's Stage1 works with, once it is loaded."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.talker import Talker
from stages.minicpmo.voice_desk import VoiceDesk
from stages.minicpmo.voice_memory import VoiceMemory
from stages.minicpmo.voice_prompt import Prompts


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice that is ready to speak."""

    talker: Talker
    desk: VoiceDesk
    prompts: Prompts
    memory: VoiceMemory


LoadVoice = Callable[[MiniCPMOSettings], Awaitable[LoadedVoice]]
