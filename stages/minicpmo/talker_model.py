"""MiniCPM-o's talker for vLLM: a Llama that writes audio codes, under the checkpoint's names.

1. Conditions are computed outside and come in as `condition_embeds`, [rows, hidden]. Ids are codes.
2. Behind the codes there is one id more, which no row of the model's makes likely: it is what the
   talker's processor answers where no code could be chosen.
3. Of the tensors `tts.*` those of the decoder, of the codes and of the head are loaded; the head's
   are stored as a gain and a direction for each code and are multiplied here. The others of the
   checkpoint are passed over by their prefixes; a name that nobody knows, and a tensor that is
   missing, is an error that names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.sequence import IntermediateTensors

from stages.minicpmo.vllm_rows import GivenRows, NoDummies, RowsProcessor, rows_of

ELSEWHERE: Final = (
    "llm.",
    "apm.",
    "audio_projection_layer.",
    "vpm.",
    "resampler.",
    "tts.emb_text.",
    "tts.projector_semantic.",
    "tts.projector_spk.",
)
"""Networks of the checkpoint that this model does not run."""
UNREAD: Final = "tts.model.embed_tokens.weight"
"""Part of the published module that nothing is computed with; it may be there or not."""

_CODES: Final = "tts.emb_code.0.weight"
_HEAD: Final = "tts.head_code.0.parametrizations.weight."
_GAIN: Final = f"{_HEAD}original0"
_DIRECTION: Final = f"{_HEAD}original1"
_IN_LAYER: Final = (
    "input_layernorm.weight",
    "mlp.down_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "post_attention_layernorm.weight",
    "self_attn.k_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_proj.weight",
    "self_attn.v_proj.weight",
)


def talker_names(layers: int) -> frozenset[str]:
    """Return the names of all tensors of a talker of so many layers that are loaded."""
    names = {"tts.model.norm.weight", _CODES, _GAIN, _DIRECTION}
    for layer in range(layers):
        names.update(f"tts.model.layers.{layer}.{name}" for name in _IN_LAYER)
    return frozenset(names)


def talker_weights(
    weights: Iterable[tuple[str, torch.Tensor]], expected: frozenset[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Pass on the talker's tensors under vLLM's names; after the last one, all were there.

    Raises ValueError with the names of what is unknown or missing.
    """
    missing = set(expected)
    head: dict[str, torch.Tensor] = {}
    for name, tensor in weights:
        if name.startswith(ELSEWHERE) or name == UNREAD:
            continue
        if name not in expected:
            raise ValueError(f"the checkpoint has a tensor that no model of ours takes: {name}")
        missing.discard(name)
        if name in (_GAIN, _DIRECTION):
            head[name] = tensor
        elif name == _CODES:
            yield UNREAD, with_broken(tensor)
        else:
            yield name, tensor
    if missing:
        raise ValueError(f"the checkpoint lacks the talker's tensors {sorted(missing)}")
    yield "tts.lm_head.weight", with_broken(folded(head[_GAIN], head[_DIRECTION]))


def folded(gain: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Return the head [codes, hidden] of its gain [codes, 1] and its direction [codes, hidden]."""
    # In the checkpoint's 16 bits the length of a row would be off by as much as a code's lead.
    wide = direction.float()
    whole: torch.Tensor = gain.float() * wide / wide.norm(dim=1, keepdim=True)
    return whole.to(direction.dtype)


def with_broken(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows [codes + 1, hidden], with one of zeros for the id behind the codes."""
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])])


class _Info(GivenRows):
    most_rows: ClassVar[Mapping[str, int]] = {"condition": 512}


@MULTIMODAL_REGISTRY.register_processor(RowsProcessor, info=_Info, dummy_inputs=NoDummies)
class DuplexMiniCPMOTalker(nn.Module, SupportsMultiModal):
    """Llama with conditions among its inputs. It has no state but vLLM's keys and values."""

    packed_modules_mapping = LlamaForCausalLM.packed_modules_mapping

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
            self.tts = LlamaForCausalLM(  # type: ignore[abstract]
                vllm_config=vllm_config, prefix=maybe_prefix(prefix, "tts")
            )
        self.make_empty_intermediate_tensors = self.tts.make_empty_intermediate_tensors

    def embed_multimodal(self, **kwargs: object) -> list[torch.Tensor]:
        """Return the conditions' rows [n, hidden] as they came."""
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
        rows: torch.Tensor | IntermediateTensors = self.tts.model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )
        return rows

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the logits [n, codes + 1] of rows [n, hidden]."""
        logits: torch.Tensor | None = self.tts.compute_logits(hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the talker's tensors; see the rules above."""
        expected = talker_names(self.config.num_hidden_layers)
        loaded: set[str] = AutoWeightsLoader(self).load_weights(talker_weights(weights, expected))
        return loaded
