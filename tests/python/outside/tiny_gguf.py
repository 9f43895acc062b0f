# SPDX-License-Identifier: Apache-2.0
"""A Llama-type GGUF file of some kilobytes with random weights, written by `gguf`: every path of a loader quickly."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 64, 96, 4, 2, 16, 2, 512
# Formats of one layer's q, k, v and gate, up: all the same (fused), then mixed.
LAYER_TYPES = (
    {"attn_q": Type.Q4_1, "attn_k": Type.Q4_1, "attn_v": Type.Q4_1, "ffn_gate": Type.Q8_0, "ffn_up": Type.Q8_0},
    {"attn_q": Type.Q8_0, "attn_k": Type.Q4_0, "attn_v": Type.F32, "ffn_gate": Type.Q5_1, "ffn_up": Type.F16},
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "Ġ w", "o r")


def byte_letters():
    """The letters that stand for the 256 bytes in a byte-level BPE (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]


def tokens():
    return [*SPECIAL, *byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]


def write_tiny_gguf(path, seed=0):
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    for add, value in (
        (writer.add_block_count, LAYERS), (writer.add_context_length, CONTEXT), (writer.add_embedding_length, HIDDEN),
        (writer.add_feed_forward_length, FFN), (writer.add_head_count, HEADS), (writer.add_head_count_kv, KV_HEADS),
        (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_freq_base, 10000.0),
        (writer.add_rope_dimension_count, HEAD_DIM), (writer.add_tokenizer_model, "gpt2"),
        (writer.add_tokenizer_pre, "smollm"), (writer.add_token_list, tokens()), (writer.add_token_merges, list(MERGES)),
        (writer.add_token_types, [3] * len(SPECIAL) + [1] * (len(tokens()) - len(SPECIAL))),
        (writer.add_eos_token_id, 2),
    ):  # fmt: skip
        add(value)

    def add_matrix(name, rows, columns, kind):
        values = rng.standard_normal((rows, columns), np.float32) * np.float32(2 / columns**0.5)
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)

    def add_norm(name):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32))

    add_matrix("token_embd", len(tokens()), HIDDEN, Type.Q8_0)
    add_norm("output_norm")
    for layer, types in enumerate(LAYER_TYPES):
        shapes = {"attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
                  "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM),
                  "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}  # fmt: skip
        for name, shape in shapes.items():
            add_matrix(f"blk.{layer}.{name}", *shape, types.get(name, Type.Q4_1))
        add_norm(f"blk.{layer}.attn_norm")
        add_norm(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
