"""vLLM's registration of a model whose rows are all computed outside of it.

Rows of modality `m` come in as `m_embeds`, [rows, hidden], each taking as many positions. Inputs
are built by the engine's owner; vLLM's way from texts and sound files to inputs is shut.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, cast

import torch
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
)

_NOT_BY_TEXT: Final = "this model takes inputs with embeddings that were computed before"


class GivenRows(BaseProcessingInfo):
    """What vLLM asks about the modalities; a model has its own subclass."""

    most_rows: ClassVar[Mapping[str, int]]
    """Positions that one item can take, by modality."""

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Return that no number of items is too many."""
        return dict.fromkeys(self.most_rows)

    def get_mm_max_tokens_per_item(
        self, seq_len: int, mm_counts: Mapping[str, int] | None = None
    ) -> Mapping[str, int]:
        """Return positions by modality."""
        return self.most_rows


class NoDummies(BaseDummyInputsBuilder[GivenRows]):
    """vLLM may not make inputs up."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Return no text."""
        return ""

    def get_dummy_mm_data(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return no items."""
        return {}

    def get_dummy_processor_inputs(self, *_: Any, **__: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError(_NOT_BY_TEXT)


class RowsProcessor(BaseMultiModalProcessor[GivenRows]):
    """Knows the fields of an item and makes none."""

    def _get_mm_fields_config(self, *_: Any, **__: Any) -> Mapping[str, Any]:
        return {f"{one}_embeds": MultiModalFieldConfig.batched(one) for one in self.info.most_rows}

    def _get_prompt_updates(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def apply(self, *_: Any, **__: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError(_NOT_BY_TEXT)


def rows_of(items: Mapping[str, object], modalities: Iterable[str]) -> list[torch.Tensor]:
    """Return the items' rows [n, hidden] as they came; a call has items of one kind."""
    of_kinds = [items.get(f"{one}_embeds", ()) for one in modalities]
    return [rows for of_kind in of_kinds for rows in cast(Iterable[torch.Tensor], of_kind)]
