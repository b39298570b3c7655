"""MiniCPM-o's language model for vLLM: Qwen3 under the checkpoint's names.

1. Rows of sound and of images are computed outside and come in as `audio_embeds` and
   `image_embeds`, [rows, hidden]; each takes as many positions.
2. Only the tensors `llm.*` are loaded. Those of the models that run elsewhere are passed over by
   their prefixes; any other name, and a tensor of the language model that is missing, is an error
   that names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.sequence import IntermediateTensors

from stages.minicpmo.vllm_rows import GivenRows, NoDummies, RowsProcessor, rows_of

OURS: Final = "llm."
ELSEWHERE: Final = ("apm.", "audio_projection_layer.", "vpm.", "resampler.", "tts.")
"""Models of the checkpoint that do not run in vLLM."""

_IN_LAYER: Final = (
    "input_layernorm.weight",
    "mlp.down_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "post_attention_layernorm.weight",
    "self_attn.k_norm.weight",
    "self_attn.k_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.q_proj.weight",
    "self_attn.v_proj.weight",
)


def language_model_names(layers: int, *, is_tied: bool) -> frozenset[str]:
    """Return the names of all tensors of a language model of so many layers in the checkpoint."""
    names = {"llm.model.embed_tokens.weight", "llm.model.norm.weight"}
    if not is_tied:
        names.add("llm.lm_head.weight")
    for layer in range(layers):
        names.update(f"llm.model.layers.{layer}.{name}" for name in _IN_LAYER)
    return frozenset(names)


def language_model_weights(
    weights: Iterable[tuple[str, torch.Tensor]], expected: frozenset[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Pass on the language model's tensors; after the last one, all of them were there.

    Raises ValueError with the names of what is unknown or missing.
    """
    missing = set(expected)
    for name, tensor in weights:
        if name.startswith(ELSEWHERE):
            continue
        if name not in expected:
            raise ValueError(f"the checkpoint has a tensor that no model of ours takes: {name}")
        missing.discard(name)
        yield name, tensor
    if missing:
        raise ValueError(f"the checkpoint lacks the language model's tensors {sorted(missing)}")


class _Info(GivenRows):
    # A voice's recording of 30 s has 300 rows.
    most_rows: ClassVar[Mapping[str, int]] = {"audio": 512, "image": 64}


@MULTIMODAL_REGISTRY.register_processor(RowsProcessor, info=_Info, dummy_inputs=NoDummies)
class DuplexMiniCPMO(nn.Module, SupportsMultiModal):
    """Qwen3 with rows of sound and images among its inputs."""

    packed_modules_mapping = Qwen3ForCausalLM.packed_modules_mapping

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Return no text: none stands for an item."""
        return None

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        with self._mark_tower_model(vllm_config, set(_Info.most_rows)):
            pass
        with self._mark_language_model(vllm_config):
            self.llm = Qwen3ForCausalLM(  # type: ignore[abstract]
                vllm_config=vllm_config, prefix=maybe_prefix(prefix, "llm")
            )
        self.make_empty_intermediate_tensors = self.llm.make_empty_intermediate_tensors

    def embed_multimodal(self, **kwargs: object) -> list[torch.Tensor]:
        """Return the items' rows [n, hidden] as they came; a call has items of one kind."""
        return rows_of(kwargs, _Info.most_rows)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor | IntermediateTensors:
        """Return the rows [n, hidden] after the final norm."""
        rows: torch.Tensor | IntermediateTensors = self.llm.model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )
        return rows

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the logits [n, vocabulary] of rows [n, hidden]."""
        logits: torch.Tensor | None = self.llm.compute_logits(hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the language model's tensors; see the rules above."""
        expected = language_model_names(
            self.config.num_hidden_layers, is_tied=self.config.tie_word_embeddings
        )
        loaded: set[str] = AutoWeightsLoader(self).load_weights(
            language_model_weights(weights, expected)
        )
        return loaded
