# SPDX-License-Identifier: Apache-2.0
"""Small models with weights of ordinary size, as files that vLLM loads: config.json and model.safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

VOCABULARY = 512
HIDDEN = 256

_COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 3,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        **_COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "qwen3": {
        **_COMMON,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "attention_bias": False,
    },
    "gemma2": {
        **_COMMON,
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_activation": "gelu_pytorch_tanh",
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "sliding_window": 48,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    },
    # vLLM's own latent attention on CPUs has these widths alone.
    "deepseek_v3": {
        **_COMMON,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 96,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "attention_bias": False,
        "num_nextn_predict_layers": 0,
    },
}


def write(folder: Path, name: str, **changed: Any) -> Path:
    """Write the model into `folder` and return it; `changed` are entries of its config."""
    config = {**CONFIGS[name], **changed}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=1))
    save_file(_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_tokenizer(folder: Path) -> None:
    """Words w0 to w511, one token each."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "eos_token": "w1"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def _weights(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    gemma = config["model_type"] == "gemma2"

    def matrix(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * gain * columns**-0.5

    def norm(width: int) -> torch.Tensor:
        return torch.randn(width, generator=generator) * 0.1 + (0.0 if gemma else 1.0)

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    weights = {
        "model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, generator=generator) * 0.5,
        "model.norm.weight": norm(hidden),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden, 4.0)
    attention = _latent_attention if "kv_lora_rank" in config else _attention
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
        weights.update({f"{at}{name}.weight": norm(hidden) for name in norms})
        weights.update({f"{at}self_attn.{k}": v for k, v in attention(config, matrix, norm).items()})
        for name, shape in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
            weights[f"{at}mlp.{name}_proj.weight"] = matrix(*shape)
    return weights


def _attention(config: dict[str, Any], matrix: Any, norm: Any) -> dict[str, torch.Tensor]:
    hidden, width = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    weights = {
        "q_proj.weight": matrix(heads * width, hidden, 2.0),  # scores that tell keys apart
        "k_proj.weight": matrix(kv_heads * width, hidden, 2.0),
        "v_proj.weight": matrix(kv_heads * width, hidden),
        "o_proj.weight": matrix(hidden, heads * width),
    }
    if config["model_type"] == "qwen3":
        weights |= {"q_norm.weight": 2 * norm(width), "k_norm.weight": 2 * norm(width)}
    return weights


def _latent_attention(config: dict[str, Any], matrix: Any, norm: Any) -> dict[str, torch.Tensor]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    return {
        "q_a_proj.weight": matrix(config["q_lora_rank"], hidden),
        "q_a_layernorm.weight": norm(config["q_lora_rank"]),
        "q_b_proj.weight": matrix(heads * (nope + rope), config["q_lora_rank"], 2.0),
        "kv_a_proj_with_mqa.weight": matrix(latent + rope, hidden),
        "kv_a_layernorm.weight": norm(latent),
        "kv_b_proj.weight": matrix(heads * (nope + value), latent),
        "o_proj.weight": matrix(hidden, heads * value),
    }
