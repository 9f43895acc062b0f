# SPDX-License-Identifier: Apache-2.0
"""Llama-type models from GGUF files, run by Quire: `chat.py` beside this folder is the door.

gguf_file    the file: metadata and tensors as views, everything checked before it is used
tokenizer    text to token ids and back, chat turns
model        the layers: one call of a ragged batch, from token ids to logits
engine       requests: pages, continuous batching, chunked prefill, preemption
sampling     the next token from logits
"""
