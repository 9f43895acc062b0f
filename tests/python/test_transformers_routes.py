# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="quire": what is launched, what is copied, and caches that are not Quire's."""

import pytest
import torch
from outside import seeded
from outside.agreement import assert_near
from outside.generation import LENGTHS, NEW, assert_same_tokens, generate, pages, run
from outside.tiny_models import MODELS, left_padded, prompts, rival_of, tiny_model
from transformers import CompileConfig, DynamicCache, StaticCache

import quire
import quire.integrations.transformers as integration
from quire.integrations.transformers import PagedCache

integration.register()


@pytest.fixture
def calls(monkeypatch):
    """Every call of an op, by name, with its arguments."""
    found = []
    for name in ("store", "flash_attention", "mla_prefill", "mla_decode", "sparse_mla"):
        whole = getattr(quire, name)

        def call(*args, name=name, whole=whole, **kwargs):
            found.append((name, args, kwargs))
            return whole(*args, **kwargs)

        monkeypatch.setattr(quire, name, call)
    return found


def names(calls):
    return [name for name, _, _ in calls]


# Launches and copies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_stores_once_and_attends_once(name, calls):
    """K and V in one launch, where there is padding by slots. Where they are of different widths there are two."""
    model = tiny_model(name)
    used = generate(model, "quire", return_dict_in_generate=True).past_key_values
    layers, found = model.config.num_hidden_layers, names(calls)
    widths = {pool.shape[-1] for pool in used.layers[0].pools}
    assert found.count("store") == layers * NEW * len(widths)
    assert len(found) - found.count("store") == layers * NEW
    stores = [kwargs for op, _, kwargs in calls if op == "store"]
    is_pair = len(used.layers[0].pools) == 2 and len(widths) == 1
    assert all((kwargs.get("value") is not None) == is_pair for kwargs in stores)
    assert stores[0]["slots"].tolist().count(-1) == sum(max(LENGTHS) - length for length in LENGTHS)
    assert stores[-1]["slots"] is None  # one token each


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_new_keys_and_values_are_stored_from_where_they_are(name, calls):
    """Rows of a padded batch as the projection, norm and rope left them: views, not copies."""
    model, given = tiny_model(name), []
    used = pages(model)
    whole = used.update

    def update(key, value, *args, **kwargs):
        given.append((key.data_ptr(), value.data_ptr()))
        return whole(key, value, *args, **kwargs)

    used.update = update
    generate(model, "quire", past_key_values=used, max_new_tokens=3)
    stored = [(args[0].data_ptr(), kwargs["value"].data_ptr()) for op, args, kwargs in calls if op == "store"]
    assert stored == given and len(stored) == 3 * model.config.num_hidden_layers


def test_keys_of_another_cache_are_read_from_where_they_are(calls):
    """A DynamicCache, [batch, heads, tokens, columns] in memory, and a StaticCache with room at its end."""
    model, tokens = tiny_model("llama"), prompts((19, 19))
    model.set_attn_implementation("quire")
    for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=32)):
        run(model, cache, tokens)
        calls.clear()
        run(model, cache, [[3], [4]])
        read = [(kwargs["cache"].blocks, kwargs["cache"].value_blocks) for _, _, kwargs in calls]
        expected = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers]
        assert [(k.data_ptr(), v.data_ptr()) for k, v in read] == expected
        assert names(calls) == ["flash_attention"] * 3 and read[0][0].shape[3] == 20


def test_a_prompt_without_a_cache_is_read_from_where_it_is(calls):
    model, tokens = tiny_model("llama"), torch.tensor(prompts((19, 19)))
    model.set_attn_implementation("quire")
    with torch.no_grad():
        model(tokens, use_cache=False)
    assert names(calls) == ["flash_attention"] * 3
    for _, _, kwargs in calls:
        k, v = kwargs["k"], kwargs["v"]
        assert k.shape == v.shape and k.shape[0] == 38 and v._base is not None


def test_one_token_of_latents_is_expanded(monkeypatch):
    """transformers makes keys and values of what a cache returns; Quire reads the latents."""
    model, rows = tiny_model("deepseek_v3"), []
    for layer in model.model.layers:
        layer.self_attn.kv_b_proj.register_forward_pre_hook(lambda _, x: rows.append(x[0].shape[:-1].numel()))
    generate(model, "quire", max_new_tokens=3)
    assert rows == [1] * 3 * model.config.num_hidden_layers


@pytest.mark.parametrize("value_dim", [12, 16, 24], ids=["narrow", "equal", "wide"])
def test_values_of_another_width_than_keys(value_dim):
    """Two pools of pages, each as wide as its rows."""
    model = tiny_model("llama")
    used, layer = pages(model, 4), torch.nn.Module()
    layer.layer_idx = 0
    q, k = torch.randn(2, 4, 11, 16, generator=seeded(1)), torch.randn(2, 2, 11, 16, generator=seeded(2))
    v = torch.randn(2, 2, 11, value_dim, generator=seeded(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    for new in (slice(0, 8), slice(8, 11)):
        states = used.update(k[:, :, new].contiguous(), v[:, :, new].contiguous(), 0)
        sizes = dict(batch_size=2, q_length=new.stop - new.start, kv_length=new.stop, q_offset=new.start)
        step = integration.registration.step_mask(**sizes)
        actual, _ = integration.attention(layer, q[:, :, new], *states, step)
        assert_near(actual, expected[:, :, new].transpose(1, 2), 1e-6)
    assert [pool.shape[-1] for pool in used.layers[0].pools] == [16, value_dim]


def test_prompts_of_padding_alone():
    """A sequence without tokens, beside another, and alone: nothing is stored."""
    model, tokens = tiny_model("llama"), prompts((9, 9))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1] = 0
    used = pages(model, 4)
    logits = run(model, used, tokens, mask)
    assert used.lengths == [9, 0] and logits[0].isfinite().all()
    assert_near(logits[:1], run(model, pages(model), tokens[:1]), 1e-6)
    run(model, used := pages(model, 4), tokens[1:], mask[1:])
    assert used.lengths == [0] and used.pages_in_use == 0


# Caches of fixed room, and torch.compile -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lengths", [LENGTHS, (14, 14)], ids=["padded", "dense"])
def test_static_cache(name, lengths):
    """Room that no token has reached is not looked at; layers with a window begin to roll on the way."""
    model, inputs = tiny_model(name), left_padded(prompts(lengths))
    actual = generate(model, "quire", inputs, cache_implementation="static", return_dict_in_generate=True)
    assert type(actual.past_key_values) is StaticCache
    assert_same_tokens(actual.sequences, generate(model, rival_of(name), inputs))


def test_a_compiled_model_calls_quire_between_its_graphs():
    model, ids = tiny_model("llama"), torch.tensor(prompts((12, 12)))
    model.set_attn_implementation("quire")
    with torch.no_grad():
        expected = model(ids).logits
        torch._dynamo.reset()
        assert_near(torch.compile(model, backend="eager")(ids).logits, expected, 1e-6)
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="step_mask|quire: "):
            torch.compile(model, backend="eager", fullgraph=True)(ids)
    torch._dynamo.reset()


def test_generate_compiles_around_quire():
    """A static cache makes `generate` compile the model; on a CPU only where that is asked for."""
    model, how = tiny_model("llama"), CompileConfig(backend="eager", mode=None)
    how._compile_all_devices = True
    torch._dynamo.reset()
    options = dict(max_new_tokens=6)
    actual = generate(model, "quire", cache_implementation="static", compile_config=how, **options)
    assert_same_tokens(actual, generate(model, rival_of("llama"), **options))
    torch._dynamo.reset()


def test_a_paged_cache_is_never_compiled():
    assert not PagedCache(tiny_model("llama", attn_implementation="quire").config).is_compileable
