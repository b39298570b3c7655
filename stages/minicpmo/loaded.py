"""What MiniCPM-o's Stage0 works with, once it is loaded."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stages.engine.values import Embeddings
from stages.minicpmo.layout import RowCounts
from stages.minicpmo.ports import Ear, UnitModel
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.windows import Window


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to work."""

    ear: Ear
    language: UnitModel
    tokenizer: Tokenizer
    counts: RowCounts
    window: Window
    own_voice: Embeddings | None = None
    """The operator's recording, for sessions that bring none."""


Load = Callable[[MiniCPMOSettings], Awaitable[Loaded]]
