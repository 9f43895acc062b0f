# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with random weights of ordinary size: their logits differ clearly between tokens."""

import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DeepseekV32Config,
    DeepseekV32ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from .transformers_layer import randomize

VOCABULARY = 97
WINDOW = 9
# At the sizes of released models the kernels of a GPU are the fast ones.
WIDE = torch.get_default_device().type == "cuda"

_COMMON = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=96,
    max_position_embeddings=256,
    tie_word_embeddings=False,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
_HEADS = dict(
    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=128 if WIDE else 16
)
_WINDOWED = dict(
    num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=WINDOW
)
_EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
_LATENT = dict(
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=48,
    kv_lora_rank=512 if WIDE else 32,
    qk_nope_head_dim=128 if WIDE else 24,
    qk_rope_head_dim=64 if WIDE else 16,
    v_head_dim=128 if WIDE else 20,
    moe_intermediate_size=32,
    n_group=2,
    topk_group=1,
    num_experts_per_tok=2,
    n_shared_experts=1,
)
# So many heads that no key scores zero with all of them: top-k would choose among equals.
_INDEXER = dict(num_local_experts=8, index_n_heads=16, index_head_dim=128 if WIDE else 32)

# By name: classes, sizes, and what has no flips where nothing but attention is compared in few bits (experts, top-k).
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, _HEADS, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, _HEADS, {}),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, _HEADS | _WINDOWED | dict(query_pre_attn_scalar=24), {}),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config,
        _HEADS | _WINDOWED | dict(query_pre_attn_scalar=24, attn_logit_softcapping=2.0),
        {},
    ),
    "gpt_oss": (GptOssForCausalLM, GptOssConfig, _HEADS | _WINDOWED | _EXPERTS, dict(num_experts_per_tok=4)),
    "deepseek_v3": (
        DeepseekV3ForCausalLM,
        DeepseekV3Config,
        _LATENT | dict(n_routed_experts=8, first_k_dense_replace=1),
        dict(first_k_dense_replace=3),
    ),
    "deepseek_v32": (
        DeepseekV32ForCausalLM,
        DeepseekV32Config,
        _LATENT | _INDEXER | dict(index_topk=8, mlp_layer_types=["dense", "sparse", "sparse"]),
        dict(index_topk=30, mlp_layer_types=["dense"] * 3),
    ),
}

# What the above have not: layers that share the keys of others, and chunks.
OTHERS = {
    "gemma3n": (
        Gemma3nForCausalLM,
        Gemma3nTextConfig,
        _HEADS
        | _WINDOWED
        | dict(
            num_hidden_layers=6,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCABULARY,
            altup_num_inputs=2,
            laurel_rank=8,
            activation_sparsity_pattern=[0.0] * 6,
            intermediate_size=[96] * 6,
        ),
        {},
    ),
    "llama4": (
        Llama4ForCausalLM,
        Llama4TextConfig,
        _HEADS
        | dict(
            num_hidden_layers=4,
            attention_chunk_size=8,
            no_rope_layers=[1, 1, 1, 0],
            num_local_experts=2,
            intermediate_size_mlp=64,
            moe_layers=[],
        ),
        {},
    ),
}


def rival_of(name: str) -> str:
    """The attention of transformers that a model is compared with: sdpa, where it has that."""
    return "eager" if name in ("gemma2", "gpt_oss") else "sdpa"


def tiny_model(name: str, *, steady: bool = False, **changes) -> PreTrainedModel:
    """The same numbers wherever the model then lives."""
    model_class, config_class, sizes, steadying = (MODELS | OTHERS)[name]
    config = config_class(**(_COMMON | sizes | (steadying if steady else {}) | changes))
    with torch.device("cpu"):
        model = randomize(model_class(config), seed=6, gain=1.5).requires_grad_(False)
    return model.to(torch.get_default_device())


def prompts(lengths: tuple[int, ...], seed: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCABULARY, (n,), generator=generator, device="cpu").tolist() for n in lengths]


def left_padded(sequences: list[list[int]]) -> dict[str, torch.Tensor]:
    """input_ids and attention_mask."""
    width = max(map(len, sequences))
    ids = torch.tensor([[0] * (width - len(s)) + s for s in sequences])
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences])
    return {"input_ids": ids, "attention_mask": mask}
