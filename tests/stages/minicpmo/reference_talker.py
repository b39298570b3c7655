"""The talker in plain torch, a code at a time, without cache: what others are compared with."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from stages.minicpmo.talker_policy import Row
from tests.stages.minicpmo.tiny_weights import tensors
from tests.stages.minicpmo.vectors import arrays

STOP: Final = 6561
AUDIO_BOS: Final = 151_687
HEADS: Final = 2
LAYERS: Final = 2
THETA: Final = 1e4
EPS: Final = 1e-6

GROUPS: Final = ("forced", "greedy", "fresh")


def recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each recorded unit's name and what was recorded of it."""
    every = arrays("talker")
    for group in GROUPS:
        for number in range(int(every.get(f"{group}_count", 1))):
            name = f"{group}_{number}"
            start = f"{name}_"
            yield (
                name,
                {key[len(start) :]: one for key, one in every.items() if key.startswith(start)},
            )


RECORDED: Final = dict(recorded())
COLUMNS: Final = arrays("talker")["code_columns"]


class ReferenceTalker:
    """The tiny talker's networks, and all rows that a turn has fed."""

    def __init__(self) -> None:
        self._weights = tensors(["tts.model.", "tts.emb_code.", "tts.head_code."])
        self.fed = torch.empty(0, 64)

    def _one(self, name: str) -> torch.Tensor:
        return self._weights[f"tts.{name}"]

    def head(self) -> torch.Tensor:
        gain = self._one("head_code.0.parametrizations.weight.original0")
        direction = self._one("head_code.0.parametrizations.weight.original1")
        whole: torch.Tensor = gain * direction / direction.norm(dim=1, keepdim=True)
        return whole

    def feed(self, rows: torch.Tensor) -> Row:
        """Feed rows [n, hidden] and return the logits of the last."""
        self.fed = torch.cat([self.fed, rows])
        out: Row = (self._decoded()[-1] @ self.head().T).numpy()
        return out

    def feed_code(self, code: int) -> Row:
        return self.feed(self._one("emb_code.0.weight")[code][None])

    def _decoded(self) -> torch.Tensor:
        rows = self.fed
        for layer in range(LAYERS):
            rows = rows + self._attention(layer, self._norm(rows, layer, "input_layernorm"))
            inner = self._norm(rows, layer, "post_attention_layernorm")
            gate, up = (self._linear(inner, layer, f"mlp.{one}_proj") for one in ("gate", "up"))
            rows = rows + self._linear(silu(gate) * up, layer, "mlp.down_proj")
        return self._rms(rows, self._one("model.norm.weight"))

    def _attention(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            self._linear(rows, layer, f"self_attn.{one}_proj")
            .view(len(rows), HEADS, -1)
            .transpose(0, 1)
            for one in ("q", "k", "v")
        )
        out = scaled_dot_product_attention(turned(query), turned(key), value, is_causal=True)
        return self._linear(out.transpose(0, 1).flatten(1), layer, "self_attn.o_proj")

    def _linear(self, rows: torch.Tensor, layer: int, name: str) -> torch.Tensor:
        return linear(rows, self._one(f"model.layers.{layer}.{name}.weight"))

    def _norm(self, rows: torch.Tensor, layer: int, name: str) -> torch.Tensor:
        return self._rms(rows, self._one(f"model.layers.{layer}.{name}.weight"))

    def _rms(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + EPS) * weight


def turned(rows: torch.Tensor) -> torch.Tensor:
    """Rotate [heads, positions, size] by the positions."""
    half = rows.shape[-1] // 2
    angles = torch.arange(rows.shape[-2])[:, None] * THETA ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    one, other = rows[..., :half], rows[..., half:]
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def log_softmax(scores: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return log-probabilities, where -10000 stands for what is impossible."""
    wide = scores.astype(np.float64)
    highest = wide.max()
    logs = wide - highest - np.log(np.exp(wide - highest).sum())
    bounded: np.ndarray[Any, np.dtype[np.float64]] = np.maximum(logs, -10000)
    return bounded
