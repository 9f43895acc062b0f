# SPDX-License-Identifier: Apache-2.0
"""A model of transformers on several ranks: each computes all of it, but attends over its own keys alone."""

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from .dealt_tokens import Dealt
from .tiny_models import prompts, tiny_model

NAME = "context_parallel"


class DealtModel:
    """Greedy decoding of several sequences at once; prompts go through the model one by one, in two chunks."""

    current: "DealtModel"

    def __init__(self, group, name, lengths, new, interleave, in_chunks):
        AttentionInterface.register(NAME, _attention)
        AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
        self.model = tiny_model(name)
        self.model.set_attn_implementation(NAME)
        config = self.model.config
        self.lengths = [0] * len(lengths)
        self.in_chunks = in_chunks
        self.dealt = Dealt(
            group,
            [length + new for length in lengths],
            interleave,
            row=config.head_dim,
            kv_heads=config.num_key_value_heads,
            layers=config.num_hidden_layers,
        )
        DealtModel.current = self

    def forward(self, ids: list[list[int]], chosen: list[int]) -> torch.Tensor:
        """New tokens of the chosen sequences, equally many of each → logits of their last ones."""
        counts = {i: len(tokens) for i, tokens in zip(chosen, ids)}
        new = [counts.get(i, 0) for i in range(len(self.lengths))]
        self.step = self.dealt.step(self.lengths, new, chosen)
        positions = [list(range(self.lengths[i], self.lengths[i] + new[i])) for i in chosen]
        out = self.model(input_ids=torch.tensor(ids), position_ids=torch.tensor(positions), use_cache=False)
        self.lengths = [length + count for length, count in zip(self.lengths, new)]
        return out.logits[:, -1]

    def generate(self, sequences: list[list[int]], new: int) -> tuple[list[list[int]], torch.Tensor]:
        """`new` tokens of each sequence, and their logits [sequences, new, vocabulary]."""
        first = []
        for i, tokens in enumerate(sequences):
            half = len(tokens) // 2
            self.forward([tokens[:half]], [i])
            first.append(self.forward([tokens[half:]], [i]))
        everyone, logits = list(range(len(sequences))), [torch.cat(first)]
        while len(logits) < new:
            logits.append(self.forward(logits[-1].argmax(-1)[:, None].tolist(), everyone))
        logits = torch.stack(logits, 1)
        return logits.argmax(-1).tolist(), logits


def _attention(module, query, key, value, mask, *, scaling, sliding_window=None, softcap=None, s_aux=None, **_):
    """[batch, heads, new, columns] → [batch, new, heads, columns]."""
    running = DealtModel.current
    step, cache, layer = running.step, running.dealt.cache, module.layer_idx
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    arguments = {"scale": scaling, "softcap": softcap or 0.0, "sinks": None if s_aux is None else s_aux.float()}
    if running.in_chunks and query.shape[2] > 1 and sliding_window is None:
        out = step.attend_chunk(q, k, v, cache, layer, **arguments)
        step.store(k, v, cache, layer)
    else:
        step.store(k, v, cache, layer)
        out = step.attend(q, cache, layer, window=sliding_window, **arguments)
    return out.unflatten(0, (query.shape[0], -1)), None


def generate(group, name, lengths, new, interleave, in_chunks=True):
    return DealtModel(group, name, lengths, new, interleave, in_chunks).generate(prompts(lengths), new)
