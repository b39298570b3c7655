"""Pieces as vLLM's EngineInput: token ids with placeholders, and the rows that go there.

vLLM's own processing of texts and sounds is not used: everything arrives computed.

Rule 1: vLLM lengthens the list of ids that it is given, so each input has a list of its own.
Rule 2: rows are named by their content, so that equal rows may share vLLM's caches and different
        rows never do.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.engine.values import Embeddings, Ids, Pieces

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Item:
    """Rows of one modality and where they go."""

    modality: str
    offset: int
    """Position of the first row in this input."""
    rows: "torch.Tensor"

    @property
    def name(self) -> str:
        """Return a name that other rows do not have."""
        import torch  # noqa: PLC0415 - not needed to look at an item

        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{self.modality} {self.rows.dtype} {tuple(self.rows.shape)} ".encode())
        digest.update(self.rows.detach().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def lay_out(
    pieces: Pieces, placeholder_ids: Mapping[str, int], max_item_rows: int
) -> tuple[list[int], list[Item]]:
    """Return one token id per position, and the rows that replace those of the placeholders."""
    token_ids: list[int] = []
    items: list[Item] = []
    for piece in pieces:
        if isinstance(piece, Ids):
            token_ids.extend(piece.ids)
            continue
        items.extend(_split(piece, len(token_ids), max_item_rows))
        token_ids.extend([placeholder_ids[piece.modality]] * len(piece))
    return token_ids, items


def _split(piece: Embeddings, offset: int, max_item_rows: int) -> Iterator[Item]:
    for first in range(0, len(piece), max_item_rows):
        rows = piece.rows[first : first + max_item_rows]
        yield Item(piece.modality, offset + first, rows)


def engine_input(pieces: Pieces, placeholder_ids: Mapping[str, int], max_item_rows: int) -> Any:
    """Return the EngineInput that feeds `pieces`.

    Rows of modality `m` reach the model class as its argument `<m>_embeds`.
    """
    from vllm.inputs.engine import mm_input, tokens_input  # noqa: PLC0415 - takes seconds
    from vllm.multimodal.inputs import (  # noqa: PLC0415
        MultiModalBatchedField,
        MultiModalFieldElem,
        MultiModalKwargsItem,
        MultiModalKwargsItems,
        PlaceholderRange,
    )

    token_ids, items = lay_out(pieces, placeholder_ids, max_item_rows)
    if not items:
        return tokens_input(prompt_token_ids=token_ids)
    field = MultiModalBatchedField()
    kwargs, names, places = defaultdict(list), defaultdict(list), defaultdict(list)
    for item in items:
        value = MultiModalFieldElem(data=item.rows, field=field)
        kwargs[item.modality].append(MultiModalKwargsItem({f"{item.modality}_embeds": value}))
        names[item.modality].append(item.name)
        places[item.modality].append(PlaceholderRange(offset=item.offset, length=len(item.rows)))
    return mm_input(
        prompt_token_ids=token_ids,
        mm_kwargs=MultiModalKwargsItems(dict(kwargs)),
        mm_hashes=dict(names),
        mm_placeholders=dict(places),
    )
