# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scale_out.md are those of benchmarks/sizing.py, whose arithmetic agrees with known numbers."""

import pytest

from benchmarks import sizing

LLAMA_8B, LLAMA_70B, DEEPSEEK = sizing.MODELS


def test_page_holds_the_tables():
    document = sizing.PAGE.read_text()
    assert document == sizing.with_tables(document)
    assert document != document.replace(sizing.sizing_table(), "")


def test_parameters_are_those_of_the_models():
    """As their model cards say: 8.03, 70.6 and 671 billion, of which the indexer is none in V3."""
    assert LLAMA_8B.parameters == pytest.approx(8.03e9, rel=1e-3)
    assert LLAMA_70B.parameters == pytest.approx(70.6e9, rel=1e-3)
    indexer = 61 * (1536 * 64 * 128 + 7168 * (128 + 64))
    assert DEEPSEEK.parameters - indexer == pytest.approx(671.0e9, rel=1e-3)


def test_one_gpu_by_hand():
    on = sizing.Deployment(LLAMA_8B, 1)
    assert on.kv_bytes == 32 * 2 * 8 * 128 * 2
    assert on.weights == 2 * LLAMA_8B.parameters and on.sent == 0
    assert on.longest == int((0.9 * 141e9 - 2 * LLAMA_8B.parameters) // 131072)


@pytest.mark.parametrize("model", sizing.MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("gpus", sizing.GPUS)
def test_nothing_is_lost(model, gpus):
    """All GPUs together have at least the whole model, and the KV of a token once per replica."""
    on = sizing.Deployment(model, gpus)
    assert on.tensor * on.data == gpus and on.kv * on.context == on.tensor
    whole = model.weight_bytes * (model.parameters - model.embeddings) + 2 * model.embeddings
    assert gpus * on.weights >= whole * (1 - 1e-12)
    assert on.kv_bytes * on.tensor == model.layers * model.kv_bytes


def test_context_parallel_sends_what_the_module_sends():
    """The message of quire.integrations.context_parallel, for shapes whose parts need no padding."""
    torch = pytest.importorskip("torch")
    from quire.integrations.context_parallel import _Message

    ranks, heads, columns = 8, LLAMA_8B.heads, LLAMA_8B.head_dim
    out, lse = torch.empty(1, heads, columns, dtype=torch.bfloat16), torch.empty(1, heads)
    gathered = _Message(out, lse).bytes.numel() * (ranks - 1)
    assert gathered == sizing.context_all_gather(LLAMA_8B, heads, ranks, columns)
    part = _Message(out[:, : heads // ranks], lse[:, : heads // ranks], ranks)
    queries = heads // ranks * columns * 2 * (ranks - 1)
    by_heads = part.bytes.shape[1] * (ranks - 1) + queries
    assert by_heads == sizing.context_by_heads(LLAMA_8B, heads, ranks, columns)
