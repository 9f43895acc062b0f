# SPDX-License-Identifier: Apache-2.0
"""Broken GGUF files: a clear ValueError that names the file; no crash, no hang, no memory that the file does not justify."""

import struct
import time
import tracemalloc

import numpy as np
import pytest
from outside.chat_example import engine, gguf_file, load
from outside.tiny_gguf import write_tiny_gguf

MOST_BYTES, MOST_SECONDS = 64 << 20, 10.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("whole") / "tiny.gguf").read_bytes()


@pytest.fixture
def broken(tmp_path):
    """Writes some bytes as a file and opens it as the chat does."""
    path = tmp_path / "broken.gguf"

    def use(data):
        path.write_bytes(data)
        return load(path, threads=1)

    return use


def header_end(data):
    """Where the tensors' data begin: what stands before are lengths, types and names."""
    first = data.index(b"token_embd.weight") - 8
    while True:
        length = struct.unpack_from("<Q", data, first)[0]
        dims = struct.unpack_from("<I", data, first + 8 + length)[0] if length < 100 else 0
        if not 1 <= dims <= 4:
            return first
        first += 8 + length + 4 + 8 * dims + 4 + 8


def after(data, text, skip=0):
    return data.index(text) + len(text) + skip


def patched(data, place, form, *values):
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, place, *values)
    return bytes(changed)


def refused(use, data, *words):
    """What was said, which has these words."""
    with pytest.raises(ValueError) as caught:
        use(data)
    said = str(caught.value)
    assert "broken.gguf: '" in said and " must be " in said and ", got " in said and len(said) < 500
    assert all(word in said for word in words), said
    return said


def test_whole_file_is_taken(broken, whole):
    file, tokens, model = broken(whole)
    assert len(file.tensors) == 20 and tokens.size == 264 and model.config.layers == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ("'header'", "a file of 0")),
        (b"GGUF", ("'header'", "a file of 4")),
        (b"PK\3\4" + bytes(60), ("'magic'", "b'GGUF'", "b'PK")),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), ("'version'", "got 1")),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), ("'version'", "little-endian")),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), ("'number of metadata pairs'", str(2**60))),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + bytes(64), ("'number of tensors'", str(2**63))),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), ("'tokenizer.ggml.model'", "a string")),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**64 - 1) + bytes(20), ("'length of key 0'", str(2**64 - 1))),
        (b"GGUF" + struct.pack("<IQQQ2sI", 3, 0, 1, 2, b"\xff\xfe", 4) + bytes(20), ("'key 0'", "UTF-8")),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77) + bytes(20), ("'type of k'", "got 77")),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1) + bytes(20), ("elements of k", "got 9")),
        (
            b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 12, 2**61) + bytes(20),
            ("'length of k'", str(2**61)),
        ),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**61) + bytes(20), ("'length of k'", str(2**61))),
    ],
)
def test_broken_headers(broken, data, words):
    refused(broken, data, *words)


@pytest.mark.parametrize(
    ("key", "form", "value", "words"),
    [
        (b"llama.block_count", "I", 3, ("'blk.2.attn_q.weight'", "a tensor [64, 64]", "none")),
        (b"llama.block_count", "I", 2**32 - 1, ("'llama.block_count'", "from 1 to 1024")),
        (b"llama.embedding_length", "I", 128, ("'llama.rope.dimension_count'", "must be 32")),
        (b"llama.feed_forward_length", "I", 128, ("'shape of blk.0.ffn_gate.weight'", "[128, 64]", "[96, 64]")),
        (b"llama.attention.head_count", "I", 0, ("'llama.attention.head_count'", "got 0")),
        (b"llama.attention.head_count_kv", "I", 3, ("'llama.attention.head_count_kv'", "a divisor of 4")),
        (b"llama.context_length", "I", 0, ("'llama.context_length'", "got 0")),
        (b"llama.rope.freq_base", "f", float("nan"), ("'llama.rope.freq_base'", "nan")),
        (b"llama.attention.layer_norm_rms_epsilon", "f", float("inf"), ("epsilon'", "inf")),
        (b"llama.rope.dimension_count", "I", 8, ("'llama.rope.dimension_count'", "16")),
        (b"tokenizer.ggml.eos_token_id", "I", 264, ("'tokenizer.ggml.eos_token_id'", "from 0 to 263")),
    ],
)
def test_numbers_that_do_not_fit(broken, whole, key, form, value, words):
    refused(broken, patched(whole, after(whole, key, 4), form, value), *words)


def test_broken_tensors(broken, whole):
    info = after(whole, b"blk.0.ffn_down.weight")  # dims, columns, rows, type, offset
    assert struct.unpack_from("<IQQI", whole, info) == (2, 96, 64, 3)
    refused(broken, patched(whole, info, "I", 5), "number of dims of blk.0.ffn_down.weight", "got 5")
    refused(broken, patched(whole, info + 4, "Q", 97), "columns of blk.0.ffn_down.weight", "multiple of 32", "got 97")
    refused(broken, patched(whole, info + 4, "QQ", 2**62, 2**62), "extent of blk.0.ffn_down.weight")
    refused(broken, patched(whole, info + 12, "Q", 2**64 - 1), "extent of blk.0.ffn_down.weight")
    refused(broken, patched(whole, info + 12, "Q", 0), "extent of blk.0.ffn_down.weight", "0 bytes")
    refused(broken, patched(whole, info + 12, "Q", 32), "shape of blk.0.ffn_down.weight", "[64, 96]", "[32, 96]")
    refused(broken, patched(whole, info + 20, "I", 999), "type of blk.0.ffn_down.weight", "got 999")
    refused(broken, patched(whole, info + 20, "I", 9), "type of blk.0.ffn_down.weight", "Q8_1")
    refused(broken, patched(whole, info + 24, "Q", 33), "offset of blk.0.ffn_down.weight", "multiple of 32")
    refused(broken, patched(whole, info + 24, "Q", 2**64 - 32), "extent of blk.0.ffn_down.weight")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"blk.0.ffn_down.weight", b"blk.1.ffn_down.weight", ("name of tensor", "a new one")),
        (b"llama.block_count", b"llama.block_c0unt", ("'llama.block_count'", "nothing")),
        (b"smollm", b"smellm", ("'tokenizer.ggml.pre'", "'smellm'")),
        (b"gpt2", b"bert", ("'tokenizer.ggml.model'", "'bert'")),
        (b"he ll", b"he lx", ("'tokenizer.ggml.merges'", "he lx")),
        (b"<|im_end|>", b"<|im_END|>", None),
    ],
)
def test_texts_that_do_not_fit(broken, whole, old, new, words):
    assert len(old) == len(new) and old in whole
    changed = whole.replace(old, new, 1)
    if words is not None:
        refused(broken, changed, *words)
    else:  # a model of no chat: only turns are refused
        _, tokens, _ = broken(changed)
        refused(lambda turns: tokens.encode_turns(turns), [("user", "Hi")], "'tokenizer.ggml.tokens'", "<|im_end|>")


def survives(use, data):
    """True if the file was taken; a ValueError is an answer too, anything else is not."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        with np.errstate(all="ignore"):  # any bytes are weights, and not all weights make numbers
            _, _, model = use(data)
            made = engine.Engine(model, -1, batch=1, length=32)
            made.submit([5, 6, 7], 2)
            made.run()
        taken = True
    except ValueError as error:
        assert len(str(error)) < 500
        taken = False
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < MOST_BYTES and time.process_time() - begin < MOST_SECONDS
    return taken


def test_truncated_anywhere(broken, whole):
    end = header_end(whole)
    places = [*range(0, end, 61), *range(end, len(whole), 4099), len(whole) - 1]
    for place in places:
        refused(broken, whole[:place])


def mutate(rng, data, end):
    """One to four changes, most of them in the header: bytes, numbers of 4 and 8 bytes, pieces removed or repeated."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        limit = end if rng.random() < 0.9 else len(changed)
        place, kind = int(rng.integers(0, limit - 8)), rng.integers(0, 6)
        if kind == 0:
            changed[place] = rng.integers(0, 256)
        elif kind == 1:
            changed[place] ^= 1 << rng.integers(0, 8)
        elif kind == 2:
            struct.pack_into("<I", changed, place, int(rng.choice([0, 1, 2**31, 2**32 - 1, rng.integers(0, 64)])))
        elif kind == 3:
            struct.pack_into(
                "<Q", changed, place, int(rng.choice(np.array([0, 1, 2**31, 2**40, 2**63, 2**64 - 1], np.uint64)))
            )
        elif kind == 4:
            del changed[place : place + int(rng.integers(1, 64))]
        else:
            changed[place:place] = changed[place : place + int(rng.integers(1, 64))]
    return bytes(changed)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_files(broken, whole, seed):
    rng, end = np.random.default_rng(seed), header_end(whole)
    taken = [survives(broken, mutate(rng, whole, end)) for _ in range(200)]
    assert 0 < sum(taken) < len(taken)  # mutations that are always, or never, refused would test one path only


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        gguf_file.GgufFile(tmp_path / "none.gguf")
