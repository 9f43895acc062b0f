# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="quire": the models of transformers generate what they generate with their own attention."""

import copy
import subprocess
import sys

import pytest
import torch
import transformers
from outside import seeded
from outside.agreement import assert_near
from outside.generation import LENGTHS, NEW, assert_same_tokens, generate, pages, run
from outside.tiny_models import MODELS, OTHERS, WINDOW, left_padded, prompts, rival_of, tiny_model
from transformers import DynamicCache, masking_utils

import quire
import quire.integrations.transformers as integration
from quire.integrations.transformers import PagedCache, cache as cache_module, masks

integration.register()

@pytest.fixture(scope="module", params=MODELS)
def named(request):
    return request.param, tiny_model(request.param)


# generate ------------------------------------------------------------------------------------------------------------


def test_greedy_tokens(named):
    """A left-padded batch: prefill of three lengths, then decoding over several pages."""
    name, model = named
    asked = dict(output_logits=True, return_dict_in_generate=True)
    expected = generate(model, rival_of(name), **asked)
    actual = generate(model, "quire", past_key_values=pages(model), **asked)
    assert_same_tokens(actual.sequences, expected.sequences)
    theirs, ours = torch.stack(expected.logits, 1), torch.stack(actual.logits, 1)
    assert_near(ours, theirs, 1e-4)
    best = theirs.topk(2).values
    assert (best[..., 0] - best[..., 1]).min() > 1e-3  # the tokens hang on no rounding
    assert actual.past_key_values.lengths == [n + NEW - 1 for n in LENGTHS]


@pytest.mark.parametrize("name", OTHERS)
def test_shared_keys_and_chunks(name):
    model = tiny_model(name)
    actual = generate(model, "quire", past_key_values=pages(model, 4))
    assert_same_tokens(actual, generate(model, rival_of(name)))


@pytest.mark.parametrize("name", ["gemma3", "deepseek_v3"])
def test_generate_makes_a_paged_cache(name):
    model = tiny_model(name)
    actual = generate(model, "quire", return_dict_in_generate=True)
    assert type(actual.past_key_values) is PagedCache
    assert_same_tokens(actual.sequences, generate(model, rival_of(name)))


@pytest.mark.parametrize(
    "options", [dict(use_cache=False), dict(cache_implementation="dynamic")], ids=["none", "dynamic"]
)
def test_without_a_cache_of_quire(named, options):
    """Keys and values then come whole, in two tensors."""
    name, model = named
    inputs = left_padded(prompts((23, 11, 20)))
    actual = generate(model, "quire", inputs, max_new_tokens=6, **options)
    assert_same_tokens(actual, generate(model, rival_of(name), inputs, max_new_tokens=6))


def test_beams_share_pages(named):
    name, model = named
    used = pages(model)
    options = dict(num_beams=4, num_return_sequences=2, max_new_tokens=12)
    actual = generate(model, "quire", past_key_values=used, **options)
    assert_same_tokens(actual, generate(model, rival_of(name), **options))
    apart = len(used._tables) * sum(-(-length // used.page_size) for length in used.lengths)
    assert used.batch_size == 12 and used.pages_in_use < apart


def test_assisted_decoding_crops(named):
    """Tokens that were guessed wrong leave the cache again; those of a window are kept until then."""
    name, model = named
    start = prompts((9,))[0]
    inputs = left_padded([start * 3 + start[:4]])
    options = dict(prompt_lookup_num_tokens=4, max_new_tokens=32)
    cropped = []

    class Counting(PagedCache):
        def crop(self, tokens_to_remove):
            cropped.append(int(tokens_to_remove))
            super().crop(tokens_to_remove)

    model.set_attn_implementation("quire")
    actual = generate(model, "quire", inputs, past_key_values=Counting(model.config, page_size=4), **options)
    assert torch.equal(actual, generate(model, rival_of(name), inputs, max_new_tokens=32))
    assert min(cropped) < 0


def test_a_conversation_keeps_its_cache(named):
    """The second call has the tokens of the first one in its cache, and a copy of the cache goes another way."""
    name, model = named
    first, second = prompts((21, 6), seed=3)
    used = pages(model, 4)
    said = generate(model, "quire", left_padded([first]), past_key_values=used, max_new_tokens=5)[0].tolist()
    other = copy.deepcopy(used)
    for cache, more in ((used, second), (other, second[::-1])):
        inputs = left_padded([said + more])
        actual = generate(model, "quire", inputs, past_key_values=cache, max_new_tokens=8)
        assert torch.equal(actual, generate(model, rival_of(name), inputs, max_new_tokens=8))


@pytest.mark.parametrize("lengths, chunk", [(LENGTHS, 9), ((150, 61), 32)], ids=["short", "long"])
def test_prefill_in_chunks(named, lengths, chunk):
    """Left padding fills whole chunks of the shorter prompts."""
    name, model = named
    inputs = left_padded(prompts(lengths))
    actual = generate(model, "quire", inputs, past_key_values=pages(model), prefill_chunk_size=chunk, max_new_tokens=3)
    assert_same_tokens(actual, generate(model, rival_of(name), inputs, max_new_tokens=3))


@pytest.mark.parametrize("name", ["llama", "gemma3", "deepseek_v3"])
def test_an_assistant_with_pages_of_its_own(name):
    """Both models' caches are cropped to what was accepted."""
    model, assistant = tiny_model(name), tiny_model(name)
    with torch.no_grad():
        for weight in assistant.parameters():
            weight.mul_(1.02)  # mostly of the same mind
    assistant.set_attn_implementation("quire")
    inputs = left_padded(prompts((19,)))
    actual = generate(model, "quire", inputs, assistant_model=assistant, max_new_tokens=24)
    assert torch.equal(actual, generate(model, rival_of(name), inputs, max_new_tokens=24))


@torch.no_grad()
def forced_log_probabilities(model, attention: str, make_cache, decoded: int = 8) -> torch.Tensor:
    """Of given tokens: a prefill of all but the last ones, which follow one by one. float64 [tokens, vocabulary]."""
    model.set_attn_implementation(attention)
    inputs = left_padded(prompts(LENGTHS))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, begin, rows = make_cache(model.config), 0, []
    for end in range(ids.shape[1] - decoded, ids.shape[1] + 1):
        new = slice(begin, end)
        out = model(ids[:, new], attention_mask=mask[:, :end], position_ids=positions[:, new], past_key_values=cache)
        rows.append(out.logits[mask[:, new].bool()])
        begin = end
    return torch.cat(rows).double().log_softmax(-1)


IN_FEW_BITS = [(name, "bfloat16") for name in MODELS] + [("llama", "float16"), ("deepseek_v3", "float16")]


@pytest.mark.parametrize("name, dtype", IN_FEW_BITS)
def test_log_probabilities(name, dtype):
    """No further from float32 than twice what the model's own attention is."""
    model = tiny_model(name, steady=True).to(getattr(torch, dtype))
    exact = forced_log_probabilities(
        copy.deepcopy(model).float(), rival_of(name), lambda config: DynamicCache(config=config)
    )
    theirs = forced_log_probabilities(model, rival_of(name), lambda config: DynamicCache(config=config))
    ours = forced_log_probabilities(model, "quire", lambda config: PagedCache(config, page_size=16))

    def distance(x):
        return (x - exact).square().mean().sqrt().item()

    assert 0 < distance(theirs) < 0.2  # no flips of experts, few of an indexer's choice
    assert distance(ours) <= 2 * distance(theirs)


def test_every_layer_uses_the_step_of_the_first(monkeypatch):
    model, made = tiny_model("gemma3"), []
    whole = PagedCache._new_step
    monkeypatch.setattr(PagedCache, "_new_step", lambda *arguments: made.append(1) or whole(*arguments))
    generate(model, "quire", past_key_values=pages(model))
    assert len(made) == NEW


def test_latents_are_never_expanded(monkeypatch):
    """The prompt goes through mla_prefill, each token after it through mla_decode; nothing through flash_attention."""
    model, calls = tiny_model("deepseek_v3"), []
    for op in ("mla_prefill", "mla_prefill_plan", "mla_decode", "flash_attention"):
        whole = getattr(quire, op)
        monkeypatch.setattr(quire, op, lambda *a, op=op, whole=whole, **k: calls.append(op) or whole(*a, **k))
    generate(model, "quire")
    layers = model.config.num_hidden_layers
    assert calls == ["mla_prefill_plan"] + ["mla_prefill"] * layers + ["mla_decode"] * layers * (NEW - 1)


# The cache -----------------------------------------------------------------------------------------------------------


def test_pages_outside_the_window_are_given_back():
    model = tiny_model("gemma3")
    used = pages(model, 4)
    generate(model, "quire", left_padded(prompts((8, 5))), past_key_values=used, max_new_tokens=80)
    in_window, whole = used._tables[WINDOW], used._tables[None]
    assert whole.num_pages == 22 + 21
    assert in_window.num_pages <= 2 * (WINDOW // 4 + 2)


def test_repeat_select_and_reset():
    model = tiny_model("llama")
    first, second = prompts((19, 19))
    used = pages(model, 8)
    run(model, used, [first, second])
    used.batch_repeat_interleave(2)
    used.batch_select_indices(torch.tensor([3, 0, 1]))
    new = [[5], [6], [7]]
    actual = run(model, used, new)
    used.reset()
    expected = run(model, used, [second + [5], first + [6], first + [7]])
    assert_near(actual[:, -1], expected[:, -1], 1e-5)
    assert used.get_seq_length() == 20 and used.batch_size == 3


def test_tokens_of_a_window_may_be_cropped_if_they_were_kept():
    model = tiny_model("gemma3")
    tokens = prompts((40,))[0]
    for keeps in (True, False):
        used = pages(model, 4)
        if keeps:
            used.activate_past_recording()
        for new in (tokens[:20], tokens[20:36], tokens[36:]):
            run(model, used, [new])
        if keeps:
            used.crop(-20)
            assert_near(run(model, used, [tokens[20:]])[:, -1], run(model, pages(model), [tokens])[:, -1], 1e-5)
        else:
            with pytest.raises(RuntimeError, match="activate_past_recording"):
                used.crop(-20)
    with pytest.raises(ValueError, match="minus the number of tokens"):
        used.crop(3)


def test_pools_grow_seldom_and_keep_what_they_have():
    layer = cache_module.PagedLayer(0, "full_attention", None, page_size=4)
    states, pools, kept = [torch.zeros(1, 2, 8), torch.zeros(1, 2, 6)], set(), []
    for count in range(1, 200):
        layer.reserve(count, None, states)
        pools.add(layer.pools[0].data_ptr())
        for pool in layer.pools:
            pool[count - 1] = count
        kept.append(float(count))
    assert layer.pools[0][:199, 0, 0, 0].tolist() == kept == layer.pools[1][:199, 3, 1, 5].tolist()
    assert len(pools) <= 9
    layer.reserve(300, 320, states)
    assert layer.pools[0].shape[0] == layer.pools[1].shape[0] == 320
    with pytest.raises(ValueError, match="new tokens of layer 0 are 2 x 6 and 2 x 6 torch.float32"):
        layer.reserve(300, 320, [states[1], states[1]])


def test_an_interrupted_forward_pass_is_noticed_and_undone():
    model, tokens = tiny_model("llama"), prompts((12,))[0]
    used = pages(model, 4)
    run(model, used, [tokens[:9]])

    def interrupt(*_):
        raise KeyboardInterrupt

    hook = model.model.layers[1].mlp.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model, used, [[7, 8]])
    hook.remove()
    with pytest.raises(RuntimeError, match=r"was not completed; crop\(0\)"):
        run(model, used, [[7, 8]])
    used.crop(0)
    assert_near(run(model, used, [tokens[9:]])[:, -1], run(model, pages(model), [tokens])[:, -1], 1e-5)


# Masks ---------------------------------------------------------------------------------------------------------------

RULES = {
    "causal": (masking_utils.causal_mask_function, masks.Rule(True)),
    "sliding": (masking_utils.sliding_window_causal_mask_function(5), masks.Rule(True, 5)),
    "chunked": (masking_utils.chunked_causal_mask_function(6, torch.tensor([0, 4, 9])), masks.Rule(True, None, 6)),
    "full": (masking_utils.bidirectional_mask_function, masks.Rule(False)),
    "full_window": (masking_utils.sliding_window_bidirectional_mask_function(5), masks.Rule(False, 6)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("padded", [False, True], ids=["dense", "padded"])
def test_masks_are_those_of_sdpa(rule, padded):
    function, expected_rule = RULES[rule]
    assert masks.read_rule(function) == expected_rule
    batch, count, keys = 3, (19 if rule.startswith("full") else 7), 19
    sizes = dict(batch_size=batch, q_length=count, kv_length=keys, q_offset=keys - count, mask_function=function)
    padding = torch.ones(batch, keys, dtype=torch.bool)
    if padded or rule == "chunked":  # whose function above has these numbers
        padding[1, :4] = padding[2, :9] = False
    q = torch.randn(batch, 4, count, 16, generator=seeded(1))
    k, v = torch.randn(2, batch, 2, keys, 16, generator=seeded(2))
    step = integration.registration.step_mask(**sizes, attention_mask=padding)
    actual, _ = integration.attention(torch.nn.Module(), q, k, v, step, scaling=0.3)
    allowed = masking_utils.sdpa_mask(**sizes, attention_mask=padding, allow_is_causal_skip=False, device=q.device)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, allowed, scale=0.3, enable_gqa=True)
    there = torch.ones_like(padding) if rule == "full" else padding[:, keys - count :]
    assert_near(actual[there], expected.transpose(1, 2)[there], 1e-6)


@pytest.mark.parametrize("count", [3, 19, 40], ids=["fewer", "equal", "more"])
def test_cross_attention(count):
    """Queries see all keys but padding; how many there are says nothing about the keys."""
    batch, keys, function = 3, 19, masking_utils.bidirectional_mask_function
    sizes = dict(batch_size=batch, q_length=count, kv_length=keys, mask_function=function)
    padding = torch.arange(keys) < torch.tensor([[19], [12], [1]])
    q, k = torch.randn(batch, 4, count + keys, 16, generator=seeded(1)).split([count, keys], dim=2)
    step = integration.registration.step_mask(**sizes, attention_mask=padding)
    actual, _ = integration.attention(torch.nn.Module(), q, k, k + 1, step, is_causal=False)
    allowed = masking_utils.sdpa_mask(**sizes, attention_mask=padding, allow_is_causal_skip=False, device=q.device)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k + 1, allowed)
    assert_near(actual, expected.transpose(1, 2), 1e-6)
    padding[2] = False
    step = integration.registration.step_mask(**sizes, attention_mask=padding)
    actual, _ = integration.attention(torch.nn.Module(), q, k, k + 1, step, is_causal=False)
    assert_near(actual[:2], expected.transpose(1, 2)[:2], 1e-6)
    assert (actual[2] == 0).all()  # a sequence without keys


def test_holes_in_the_mask():
    """Full attention does not care where tokens stand; a window counts positions, so there a hole is refused."""
    tokens, mask = prompts((16,))[0], torch.ones(1, 16, dtype=torch.long)
    mask[0, 6:9] = 0
    llama = tiny_model("llama")
    actual = run(llama, pages(llama, 4), [tokens], mask)
    llama.set_attn_implementation("sdpa")
    assert_near(actual[mask.bool()], run(llama, None, [tokens], mask)[mask.bool()], 1e-5)
    gemma = tiny_model("gemma3")
    with pytest.raises(NotImplementedError, match="padding between tokens"):
        run(gemma, pages(gemma), [tokens], mask)


def test_refused_masks():
    model, tokens = tiny_model("llama"), prompts((6, 6))
    used = pages(model)
    with pytest.raises(NotImplementedError, match=r"a tensor \[2, 1, 6, 6\] that was made outside"):
        run(model, None, tokens, torch.ones(2, 1, 6, 6, dtype=torch.bool).tril())
    with pytest.raises(NotImplementedError, match="packed_sequence_mask_function"), torch.no_grad():
        model(torch.tensor(tokens), position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]), use_cache=False)
    blocks = masking_utils.or_masks(masking_utils.causal_mask_function, lambda *_: True)
    assert "or_masks" in masks.read_rule(blocks).refusal
    run(model, used, tokens, torch.ones(2, 6, dtype=torch.long))
    with pytest.raises(NotImplementedError, match="whether it has two sides"):
        integration.attention(model, *torch.zeros(3, 1, 4, 6, 16), None, is_causal=False, sliding_window=3)
    changed = torch.ones(2, 7, dtype=torch.long)
    with pytest.raises(ValueError, match="6 columns for 6 cached and 1 new"):
        run(model, used, [[3], [4]], changed[:, :6])
    changed[1, 2] = 0
    used.crop(0)
    with pytest.raises(NotImplementedError, match="treats cached tokens otherwise"):
        run(model, used, [[3], [4]], changed)


def test_a_cache_that_was_cropped_empty_takes_another_batch():
    model, tokens = tiny_model("llama"), prompts((9, 9))
    used, mask = pages(model), torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    run(model, used, tokens, mask)
    with pytest.raises(ValueError, match="no attention mask, where that of the cached tokens had padding"):
        run(model, used, [[3], [4]])
    used.crop(-9)
    assert_near(run(model, used, tokens[:1]), run(model, pages(model), tokens[:1]), 1e-6)


# Refusals ------------------------------------------------------------------------------------------------------------


def test_import_of_quire_alone():
    """Neither torch nor transformers comes with it."""
    names = "[name for name in sys.modules if name.startswith(('torch', 'transformers', 'quire.int'))]"
    program = f"import sys; sys.path[:0] = {list(filter(None, sys.path))!r}; import quire; print({names})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_register_twice_wraps_once():
    wrapped = transformers.GenerationMixin._prepare_cache_for_generation
    integration.register()
    assert transformers.GenerationMixin._prepare_cache_for_generation is wrapped
    assert not hasattr(wrapped.__wrapped__, "wrapped_by_quire")


def test_a_paged_cache_is_for_quire_alone():
    model, tokens = tiny_model("llama"), prompts((6,))
    used = pages(model)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match='this model has "sdpa"'):
        PagedCache(model.config)
    with pytest.raises(RuntimeError, match="keys of layer 0 in a PagedCache were not attended to"):
        run(model, used, tokens)
    assert type(generate(model, "sdpa", return_dict_in_generate=True).past_key_values) is DynamicCache


def test_no_gradients_no_dropout_no_weights():
    model, tokens = tiny_model("llama", attention_dropout=0.1), torch.tensor(prompts((6,)))
    model.set_attn_implementation("quire")
    with pytest.raises(NotImplementedError, match="output_attentions"), torch.no_grad():
        integration.attention(model, *torch.zeros(3, 1, 4, 6, 16), None, output_attentions=True)
    with pytest.raises(NotImplementedError, match="attention weights are never made"):
        generate(model, "quire", output_attentions=True, return_dict_in_generate=True)
    with pytest.raises(NotImplementedError, match="position_bias"), torch.no_grad():
        integration.attention(model, *torch.zeros(3, 1, 4, 6, 16), None, position_bias=torch.zeros(1))
    model.train()
    with pytest.raises(NotImplementedError, match="no dropout, got 0.1"), torch.no_grad():
        model(tokens)
    model.eval().requires_grad_(True)
    with pytest.raises(NotImplementedError, match="no gradients"):
        model(tokens)
    with pytest.raises(NotImplementedError, match="no gradients"):
        model(tokens, past_key_values=pages(model))


def test_caches_that_are_not_served():
    model, tokens = tiny_model("llama"), prompts((6,))
    model.set_attn_implementation("quire")
    config = copy.deepcopy(model.config)
    config.layer_types = ["full_attention", "linear_attention", "full_attention"]
    with pytest.raises(NotImplementedError, match="layers of type linear_attention have no keys"):
        PagedCache(config)
    used = pages(model)
    run(model, used, tokens)
    with pytest.raises(ValueError, match="2 sequences, where the cache holds 1"):
        run(model, used, [[3], [4]])
    chunks = masking_utils.chunked_causal_mask_function(6, torch.tensor([0]))
    step = masks.step_mask(1, 2, 8, q_offset=10, kv_offset=4, mask_function=chunks)
    with pytest.raises(NotImplementedError, match="chunked attention over a cache that dropped tokens"):
        integration.attention(torch.nn.Module(), torch.zeros(1, 2, 2, 16), *torch.zeros(2, 1, 2, 8, 16), step)
    step = masks.step_mask(1, 2, 8, q_offset=10, kv_offset=0)
    with pytest.raises(NotImplementedError, match="8 keys from 0 on for 2 queries from 10 on"):
        integration.attention(torch.nn.Module(), torch.zeros(1, 2, 2, 16), *torch.zeros(2, 1, 2, 8, 16), step)


def test_what_quire_itself_refuses_is_said_by_quire():
    model = tiny_model("llama").double()
    with pytest.raises(TypeError, match="store: 'x' must be"):
        run(model, pages(model), prompts((6,)))


def test_layers_that_disagree_with_their_masks():
    model, tokens = tiny_model("gemma3"), prompts((6,))
    model.model.layers[0].self_attn.sliding_window = WINDOW + 1
    with pytest.raises(NotImplementedError, match="window of 10, the mask that it was given one of 9"):
        run(model, pages(model), tokens)


def test_latents_need_a_plain_projection():
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = tiny_model("deepseek_v3")
    for layer in model.model.layers:
        plain = layer.self_attn.kv_b_proj
        layer.self_attn.kv_b_proj = Scaled(plain.in_features, plain.out_features, bias=False)
    with pytest.raises(NotImplementedError, match="kv_b_proj is a Scaled"):
        run(model, pages(model), prompts((6,)))
