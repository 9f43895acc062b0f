# SPDX-License-Identifier: Apache-2.0
"""examples/python/llama answers as numpy does, token by token, and the same however requests are batched."""

import numpy as np
import pytest
from outside.chat_example import engine, find_smollm, load, sampling
from outside.llama_numpy import NumpyLlama
from outside.tiny_gguf import write_tiny_gguf

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "How do I boil an egg?",
    "Explain why the sky is blue to a child.",
    "List three prime numbers and say why they are prime.",
    "Who wrote Romeo and Juliet, and when?",
    "Translate 'good morning' into Spanish.",
    "Give me a recipe for pancakes with 2 eggs.",
)
NEW_TOKENS = 64
NEVER = -1  # no token stops an answer: they all get as long as they were asked to


@pytest.fixture(scope="module")
def smollm():
    """It must be there: `make setup-test` installs it."""
    return load(find_smollm())


@pytest.fixture(scope="module")
def prompts(smollm):
    _, tokenizer, _ = smollm
    return [
        tokenizer.encode_turns([("system", SYSTEM), ("user", text)]) + tokenizer.encode_answer() for text in PROMPTS
    ]


@pytest.fixture(scope="module")
def batched(smollm, prompts):
    """All prompts together, each with its 64 tokens."""
    return answers(smollm[2], prompts, NEW_TOKENS, batch=len(prompts), length=256)


def ask(model, prompts, new_tokens, *, prefix=(), **options):
    """The requests of prompts that were submitted together, answered."""
    made = engine.Engine(model, NEVER, **options)
    if prefix:
        assert made.hold_prefix(prefix) > 0
    requests = [made.submit(prompt, new_tokens) for prompt in prompts]
    made.run()
    return requests


def answers(*args, **options):
    return [request.answer for request in ask(*args, **options)]


def assert_greedy(oracle, prompt, answer):
    """Each token is the one of the largest logit after all tokens before it: by induction, greedy decoding.

    Nothing is tolerated. A difference where two logits all but tie says so.
    """
    logits = oracle.logits([*prompt, *answer[:-1]], len(prompt) - 1)
    for place, (row, token) in enumerate(zip(logits, answer, strict=True)):
        best = int(row.argmax())
        gap = float(row[best] - row[token])
        assert token == best, f"token {place} is {token}, numpy has {best}, whose logit is larger by {gap}"


def test_64_greedy_tokens_of_8_prompts_are_numpys(prompts, batched):
    oracle = NumpyLlama(find_smollm())
    for prompt, answer in zip(prompts, batched, strict=True):
        assert len(answer) == NEW_TOKENS
        assert_greedy(oracle, prompt, answer)


def test_the_answer_is_an_answer(smollm, batched):
    assert smollm[1].decode(batched[0]).startswith("The capital of France is Paris.")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"batch": 1, "length": 128}, id="alone"),
        pytest.param({"batch": 3, "length": 128, "chunk": 7}, id="chunked"),
        pytest.param({"batch": 3, "length": 128, "page_size": 64}, id="larger pages"),
    ],
)
def test_smollm_answers_the_same_however_it_is_batched(smollm, prompts, batched, options):
    assert answers(smollm[2], prompts[:3], 12, **options) == [answer[:12] for answer in batched[:3]]


def test_smollm_answers_the_same_over_a_shared_system_prompt(smollm, prompts, batched):
    prefix = smollm[1].encode_turns([("system", SYSTEM)])
    assert all(prompt[: len(prefix)] == prefix for prompt in prompts)
    requests = ask(smollm[2], prompts[:3], 12, prefix=prefix, batch=3, length=128)
    assert [request.answer for request in requests] == [answer[:12] for answer in batched[:3]]
    assert all(request.cached >= len(prefix) // 16 * 16 for request in requests)


def test_smollm_answers_the_same_when_preempted(smollm, prompts, batched):
    requests = ask(smollm[2], prompts[:3], 24, batch=3, length=96, page_size=4, pages=36)
    assert [request.answer for request in requests] == [answer[:24] for answer in batched[:3]]
    assert sum(request.preemptions for request in requests) > 0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return path, load(path, threads=1)[2]  # its products are over before a second thread has woken up


@pytest.fixture(scope="module")
def tiny_prompts():
    """They share their first 37 tokens, and some of them more."""
    rng = np.random.default_rng(3)
    shared = rng.integers(3, 260, 37).tolist()
    return [shared + rng.integers(3, 260, count).tolist() for count in (1, 5, 30, 63, 2, 17)]


@pytest.fixture(scope="module")
def tiny_alone(tiny, tiny_prompts):
    return [answers(tiny[1], [prompt], 40, batch=1, length=160)[0] for prompt in tiny_prompts]


def test_tiny_models_tokens_are_numpys(tiny, tiny_prompts, tiny_alone):
    """Layers of one format, whose projections are fused, and of mixed ones."""
    oracle = NumpyLlama(tiny[0])
    for prompt, answer in zip(tiny_prompts, tiny_alone, strict=True):
        assert_greedy(oracle, prompt, answer)


@pytest.mark.parametrize("shares_prefix", [False, True])
@pytest.mark.parametrize("pages", [None, 30, 12])
@pytest.mark.parametrize("chunk", [6, 50, 256])
@pytest.mark.parametrize("batch", [1, 4, 6])
def test_tiny_model_answers_the_same(tiny, tiny_prompts, tiny_alone, batch, chunk, pages, shares_prefix):
    prefix = tiny_prompts[0][:37] if shares_prefix else ()
    options = {"batch": batch, "chunk": chunk, "pages": pages, "length": 160, "page_size": 8 if pages is None else 16}
    requests = ask(tiny[1], tiny_prompts, 40, prefix=prefix, **options)
    assert [request.answer for request in requests] == tiny_alone
    preemptions = sum(request.preemptions for request in requests)
    if pages == 12 and batch > 1:
        assert preemptions > 0
    if pages is None:
        assert preemptions == 0


def test_threads_give_the_same_tokens(tiny, tiny_prompts, tiny_alone):
    """Long prompts are cut for several threads, in numpy and in Quire."""
    model = load(tiny[0], threads=3)[2]
    long = [prompt * 4 for prompt in tiny_prompts[2:4]]
    options = {"batch": 2, "length": 512, "chunk": 512}
    assert answers(model, long, 6, **options) == answers(tiny[1], long, 6, **options)
    assert answers(model, tiny_prompts, 40, batch=6, length=160) == tiny_alone


def test_random_draws_do_not_depend_on_the_batch(tiny, tiny_prompts):
    def drawn(prompts, seeds, **options):
        made = engine.Engine(tiny[1], NEVER, length=160, **options)
        samplers = [sampling.Sampler(temperature=1.0, top_p=0.9, seed=seed) for seed in seeds]
        requests = [made.submit(p, 20, sampler=s) for p, s in zip(prompts, samplers, strict=True)]
        made.run()
        return [request.answer for request in requests]

    together = drawn(tiny_prompts, range(6), batch=4, pages=24)
    assert together == [drawn([p], [seed], batch=1)[0] for seed, p in enumerate(tiny_prompts)]
    assert len({tuple(answer) for answer in drawn(tiny_prompts[:1] * 6, range(6), batch=6)}) > 1


def test_answers_end_with_the_stop_token(tiny, tiny_prompts, tiny_alone):
    stop = tiny_alone[1][5]
    made = engine.Engine(tiny[1], stop, batch=2, length=160)
    seen = []
    request = made.submit(tiny_prompts[1], 40, on_token=seen.append)
    made.run()
    assert seen == request.answer == tiny_alone[1][: tiny_alone[1].index(stop) + 1]


@pytest.mark.parametrize(
    ("submit", "message"),
    [
        (([], 5), "tokens of 'prompt' must be 1 or more, .* got 0 and 5"),
        (([5] * 60, 5), "64 together, got 60 and 5"),
        (([5, 264], 5), "'prompt' must be of ids from 0 to 263, got 5 to 264"),
        (([5] * 40, 20), "'pages' must be 4 or more for this request, got 3"),
    ],
)
def test_engine_refuses_what_cannot_be_served(tiny, submit, message):
    made = engine.Engine(tiny[1], NEVER, batch=2, length=64, pages=3)
    with pytest.raises(ValueError, match=message):
        made.submit(*submit)
    assert made.submit([5, 6], 2) and made.run() is None
