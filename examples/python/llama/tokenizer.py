# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, from the vocabulary inside of a GGUF file; chat turns as ChatML."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from llama.gguf_file import GgufFile, refuse

CONTROL, USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type
TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"


def _pre_tokenizer(file: GgufFile) -> pre_tokenizers.PreTokenizer:
    """How text is cut before merges apply; the file has its name only."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    known = {
        "gpt-2": byte_level,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
    }
    name = file.string("tokenizer.ggml.pre", "gpt-2")
    if name not in known:
        refuse(file.path, "tokenizer.ggml.pre", f"one of {sorted(known)}", repr(name))
    return known[name]


class ChatTokenizer:
    """The byte-level BPE of the file. `stop` is the id that ends an answer."""

    def __init__(self, file: GgufFile) -> None:
        kind = file.string("tokenizer.ggml.model")
        if kind != "gpt2":
            refuse(file.path, "tokenizer.ggml.model", "'gpt2', a byte-level BPE", repr(kind))
        words = file.strings("tokenizer.ggml.tokens")
        vocabulary = {word: index for index, word in enumerate(words)}
        if len(vocabulary) != len(words):
            refuse(file.path, "tokenizer.ggml.tokens", "all different", f"{len(words) - len(vocabulary)} repeated")
        merges = [tuple(merge.split(" ")) for merge in file.strings("tokenizer.ggml.merges")]
        for merge in merges:
            if len(merge) != 2 or not all(part in vocabulary for part in (*merge, "".join(merge))):
                refuse(file.path, "tokenizer.ggml.merges", "pairs of tokens that make a token", repr(" ".join(merge)))
        self._tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=False))
        self._tokenizer.pre_tokenizer = _pre_tokenizer(file)
        self._tokenizer.decoder = decoders.ByteLevel()
        self._add_special(file, words)
        self.size = len(words)
        self.stop = file.number("tokenizer.ggml.eos_token_id", 0, len(words) - 1)
        self._can_chat = TURN_BEGIN in vocabulary and TURN_END in vocabulary
        self._path = file.path

    def _add_special(self, file: GgufFile, words: list[str]) -> None:
        kinds = file.metadata.get("tokenizer.ggml.token_type")
        if not isinstance(kinds, np.ndarray) or len(kinds) != len(words):
            refuse(file.path, "tokenizer.ggml.token_type", f"{len(words)} numbers", type(kinds).__name__)
        special = [word for word, kind in zip(words, kinds.tolist(), strict=True) if kind in (CONTROL, USER_DEFINED)]
        if "" in special:
            refuse(file.path, "tokenizer.ggml.tokens", "not empty where they are special", repr(""))
        self._tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])

    def encode(self, text: str) -> list[int]:
        """Ids of a text; names of special tokens in it become those tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_turns(self, turns: Iterable[tuple[str, str]]) -> list[int]:
        """Ids of (role, text) turns, each `<|im_start|>role\\ntext<|im_end|>\\n`. What a text says stays text: the name
        of a special token in it is spelled out, so that nobody ends a turn from inside of it."""
        if not self._can_chat:
            refuse(self._path, "tokenizer.ggml.tokens", f"with {TURN_BEGIN} and {TURN_END}", "a model without them")
        begin, end = (self._tokenizer.token_to_id(word) for word in (TURN_BEGIN, TURN_END))
        ids: list[int] = []
        for role, text in turns:
            ids += [begin, *self._plain(f"{role}\n{text}"), end, *self._plain("\n")]
        return ids

    def encode_answer(self) -> list[int]:
        """The beginning of the assistant's turn."""
        return [self._tokenizer.token_to_id(TURN_BEGIN), *self._plain("assistant\n")]

    def _plain(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        self._tokenizer.encode_special_tokens = False
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


class TextStream:
    """The text of an answer as its tokens come: a character whose bytes are not all there yet is held back."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []  # since the last text that was whole
        self._shown = 0

    def add(self, token: int) -> str:
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        new, self._shown = text[self._shown :], len(text)
        if text.endswith("\n"):  # what follows does not depend on what came before: the next decode is short again
            self._ids, self._shown = [], 0
        return new
