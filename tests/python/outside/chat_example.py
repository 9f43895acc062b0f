# SPDX-License-Identifier: Apache-2.0
"""The package of examples/python/chat.py, and the model that it talks with."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "python"
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

import chat  # noqa: E402
from llama import engine, gguf_file, model, sampling, tokenizer  # noqa: E402
from llama.smollm import find_smollm  # noqa: E402

__all__ = ["FOLDER", "chat", "engine", "find_smollm", "gguf_file", "load", "model", "sampling", "tokenizer"]


def load(path, **options):
    """The file, its tokenizer and its model."""
    file = gguf_file.GgufFile(path)
    return file, tokenizer.ChatTokenizer(file), model.Llama(file, **options)
