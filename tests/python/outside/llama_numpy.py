# SPDX-License-Identifier: Apache-2.0
"""A Llama-type GGUF file evaluated in plain numpy and float32: the whole sequence at once, no cache, no pages.

Read by `gguf.GGUFReader`, dequantized by `gguf`; nothing of Quire, and nothing of the example that is held to it.
"""

import gguf
import numpy as np
from gguf.quants import dequantize


class NumpyLlama:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)

        def field(name):
            return reader.get_field(f"llama.{name}").contents()

        self.heads, self.kv_heads = field("attention.head_count"), field("attention.head_count_kv")
        self.layers, self.epsilon = field("block_count"), np.float32(field("attention.layer_norm_rms_epsilon"))
        self.rope_base = field("rope.freq_base")
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}

    def logits(self, tokens, first=0):
        """float32 [tokens - first, vocabulary]: row i is about the token after tokens[first + i]."""
        w = self.weights
        x = w["token_embd.weight"][tokens]
        for layer in range(self.layers):

            def project(y, name, layer=layer):
                return y @ w[f"blk.{layer}.{name}.weight"].T

            h = self.norm(x, w[f"blk.{layer}.attn_norm.weight"])
            q, k, v = (project(h, f"attn_{name}") for name in "qkv")
            x = x + project(self.attend(q, k, v), "attn_output")
            h = self.norm(x, w[f"blk.{layer}.ffn_norm.weight"])
            gate = project(h, "ffn_gate")
            x = x + project(gate / (1 + np.exp(-gate)) * project(h, "ffn_up"), "ffn_down")
        return self.norm(x[first:], w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T

    def norm(self, x, gamma):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * gamma

    def rotate(self, x):
        """[tokens, heads, head_dim], by pairs of neighbours: the order of GGUF's Llama weights."""
        half = x.shape[-1] // 2
        angles = np.outer(np.arange(len(x)), self.rope_base ** (-np.arange(half) / half))[:, None]
        pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape).astype(np.float32)

    def attend(self, q, k, v):
        count, head_dim = len(q), q.shape[1] // self.heads
        q = self.rotate(q.reshape(count, self.heads, head_dim))
        k = self.rotate(k.reshape(count, self.kv_heads, head_dim)).repeat(self.heads // self.kv_heads, axis=1)
        v = v.reshape(count, self.kv_heads, head_dim).repeat(self.heads // self.kv_heads, axis=1)
        q, k, v = (y.transpose(1, 0, 2) for y in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(head_dim))
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(count, -1)
