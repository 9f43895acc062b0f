# SPDX-License-Identifier: Apache-2.0
"""`generate` of small models, with Quire and without."""

import torch
from quire.integrations.transformers import PagedCache

from .tiny_models import left_padded, prompts

LENGTHS = (37, 17, 34)
NEW = 20


def generate(model, attention: str, inputs=None, **options):
    model.set_attn_implementation(attention)
    inputs = left_padded(prompts(LENGTHS)) if inputs is None else inputs
    return model.generate(**inputs, **(dict(max_new_tokens=NEW, do_sample=False) | options))


def pages(model, page_size: int = 16) -> PagedCache:
    model.set_attn_implementation("quire")
    return PagedCache(model.config, page_size=page_size)


def run(model, cache, ids, mask=None):
    with torch.no_grad():
        return model(torch.as_tensor(ids), attention_mask=mask, past_key_values=cache).logits


def assert_same_tokens(actual: torch.Tensor, expected: torch.Tensor):
    assert torch.equal(actual, expected)
    assert len(expected.unique()) > 12  # not one token again and again
