# SPDX-License-Identifier: Apache-2.0
"""Pages outside of an engine: what they are called, and how their bytes go between a cache and a folder.

A folder in shared memory (/dev/shm) moves pages between engines of one machine, one on a network file system between
machines. Nothing is ever deleted here: the folder belongs to whoever made it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


def page_keys(tokens: Sequence[int], page_size: int, salt: str) -> list[str]:
    """The name of each page of a prompt, the last one possibly not full.

    A name follows from all tokens up to the page's end: equal names are equal rows of K and V.
    """
    digest, keys = hashlib.sha256(f"{page_size}/{salt}".encode()).digest(), []
    for begin in range(0, len(tokens), page_size):
        digest = hashlib.sha256(digest + array("q", tokens[begin : begin + page_size]).tobytes()).digest()
        keys.append(digest.hex())
    return keys


class PageMemory:
    """The bytes of an engine's pages: per page one run of memory for each layer, or fewer where layers adjoin.

    In vLLM's layouts BLHNC and BLNHC (Quire's own: page, layer, token, head) all layers of a page are one run.
    """

    def __init__(self, kv_caches: dict[str, torch.Tensor], num_pages: int) -> None:
        """kv_caches: by layer [pages, ...] in any order of memory; layers that share a cache are counted once."""
        layers = {cache.data_ptr(): cache for cache in kv_caches.values()}
        spans: list[list[int]] = []  # start, bytes, page stride
        for start, cache in sorted(layers.items()):
            size, stride = _page_bytes(cache), cache.stride(0) * cache.element_size()
            if cache.shape[0] != num_pages:
                raise ValueError(f"quire: a cache of {num_pages} pages was expected, got {cache.shape[0]} blocks")
            if spans and spans[-1][0] + spans[-1][1] == start and spans[-1][2] == stride and stride > size:
                spans[-1][1] += size
            else:
                spans.append([start, size, stride])
        self.runs = [_run(layers[start], num_pages, size, stride) for start, size, stride in spans]
        self.page_bytes = sum(size for _, size, _ in spans)

    def write(self, page: int, file: Any) -> None:
        """Into an unbuffered file: a copy for each run."""
        for run in self.runs:
            _all(file.write, memoryview(run[page].cpu().numpy()))

    def read(self, page: int, file: Any) -> None:
        for run in self.runs:
            rows = run[page]
            host = rows.numpy() if rows.device.type == "cpu" else np.empty(rows.shape, np.uint8)
            _all(file.readinto, memoryview(host))
            if rows.device.type != "cpu":
                rows.copy_(torch.from_numpy(host))


def _page_bytes(cache: torch.Tensor) -> int:
    """Of one page, whose elements must fill their memory."""
    expected = 1
    for extent, stride in sorted(zip(cache.shape[1:], cache.stride()[1:], strict=True), key=lambda dim: dim[1]):
        if extent > 1 and stride != expected:
            raise ValueError(
                "quire: pages of a layer must be whole runs of memory (layouts LBNHC, LBHNC, BLNHC, BLHNC), got strides"
                f" {tuple(cache.stride())} of {tuple(cache.shape)}"
            )
        expected *= extent
    return expected * cache.element_size()


def _run(first: torch.Tensor, num_pages: int, size: int, stride: int) -> torch.Tensor:
    """uint8 [pages, bytes] from where a layer's cache begins."""
    storage = first.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=first.device).set_(storage)
    return whole.as_strided((num_pages, size), (stride, 1), first.data_ptr() - storage.data_ptr())


def _all(move: Any, view: memoryview) -> None:
    """The whole view, in as many calls as the system wants: one, where nothing interferes."""
    while view:
        done = move(view)
        if not done:
            raise OSError("quire: a page's file is too short")
        view = view[done:]


class PageStore:
    """Pages as files of a folder. A file that is there is whole: it gets its name when all of it is written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        return self.folder / key

    def holds(self, key: str) -> bool:
        return self.path(key).exists()

    def count(self, keys: Sequence[str]) -> int:
        """How many of the first keys are there, without a gap."""
        return next((i for i, key in enumerate(keys) if not self.holds(key)), len(keys))

    def save(self, key: str, memory: PageMemory, page: int) -> None:
        unfinished = self.folder / f"{key}.{os.getpid()}.{threading.get_ident()}"
        with open(unfinished, "wb", buffering=0) as file:
            memory.write(page, file)
        unfinished.replace(self.path(key))

    def load(self, key: str, memory: PageMemory, page: int) -> None:
        with open(self.path(key), "rb", buffering=0) as file:
            memory.read(page, file)
