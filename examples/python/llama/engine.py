# SPDX-License-Identifier: Apache-2.0
"""Requests over pages: continuous batching, chunked prefill, shared prefixes, preemption.

One step of the loop, around `quire.PageManager`:

    admit      waiting requests get a row of the page table, what the cache has of their prompt, and pages for the rest
    schedule   one token of every answer first, then as much of the prompts as `chunk` leaves room for
    extend     pages for the new tokens; where there are none left, the request that came last goes back to the queue
    copy       pages that two sequences would write (copy on write)
    run        one pass of the model over all new tokens
    advance    the new tokens are in the cache; those that end their sequence give the next token
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import quire

from llama.model import Llama, LlamaPass
from llama.sampling import Sampler


@dataclass(eq=False)
class Request:
    """A prompt, and what has been answered so far."""

    prompt: list[int]
    max_new: int
    sampler: Sampler
    on_token: Callable[[int], object]
    answer: list[int] = field(default_factory=list)
    id: int = -1  # of its sequence in the page manager, while it runs
    row: int = -1  # of the page table, while it runs
    length: int = 0  # tokens in the cache, while it runs
    cached: int = 0  # tokens of the prompt that were in the cache when it was first admitted
    preemptions: int = 0
    done: bool = False

    @property
    def known(self) -> int:
        return len(self.prompt) + len(self.answer)

    def tokens(self, first: int, end: int) -> list[int]:
        """Known tokens: the prompt's, then the answer's."""
        split = len(self.prompt)
        return self.prompt[first:end] + self.answer[max(0, first - split) : max(0, end - split)]


class Engine:
    """Answers requests together.

    Parameters
    ----------
    model : Llama
    stop : int
        The token that ends an answer.
    batch : int
        Requests that run at the same time.
    length : int
        Tokens of a request at most, prompt and answer.
    chunk : int
        New tokens of a step, at least `batch`.
    pages, page_size : int
        The pool; by default enough pages that nothing is ever preempted.
    cache_dtype : str
        "float32" or "float16".
    """

    def __init__(
        self,
        model: Llama,
        stop: int,
        *,
        batch: int = 8,
        length: int = 2048,
        chunk: int = 256,
        pages: int | None = None,
        page_size: int = 16,
        cache_dtype: str = "float32",
    ) -> None:
        length = min(length, model.config.context)
        pages = batch * -(-length // page_size) if pages is None else pages
        if chunk < batch:
            raise ValueError(f"Engine: 'chunk' must be {batch} or more, a token of each request, got {chunk}")
        self.stop, self.length = stop, length
        self.cache = model.new_cache(pages, page_size, batch, length, cache_dtype)
        self.manager = quire.PageManager(pages, page_size)
        self.manager.bind_tables(self.cache.page_table, self.cache.cache_lengths)
        self._pass = LlamaPass(model, self.cache, chunk)
        self._rows = list(range(batch))[::-1]  # that nobody has
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order of their admission
        self._held: list[int] = []  # sequences that hold prefixes

    def submit(
        self,
        prompt: Sequence[int],
        max_new: int,
        *,
        sampler: Sampler | None = None,
        on_token: Callable[[int], object] = lambda token: None,
    ) -> Request:
        """Queues a prompt; `on_token` is called with each token of the answer, which ends with the stop token or is
        `max_new` long."""
        prompt = [int(token) for token in prompt]
        if not prompt or max_new < 1 or len(prompt) + max_new > self.length:
            what = f"1 or more, and 1 or more new ones, {self.length} together"
            raise ValueError(f"Engine: tokens of 'prompt' must be {what}, got {len(prompt)} and {max_new}")
        if not 0 <= min(prompt) <= max(prompt) < self._pass.model.config.vocabulary:
            what = f"ids from 0 to {self._pass.model.config.vocabulary - 1}"
            raise ValueError(f"Engine: 'prompt' must be of {what}, got {min(prompt)} to {max(prompt)}")
        needed, pages = -(-(len(prompt) + max_new) // self.cache.page_size), self.cache.num_pages
        if needed > pages:
            raise ValueError(f"Engine: 'pages' must be {needed} or more for this request, got {pages}")
        request = Request(prompt, max_new, sampler or Sampler(), on_token)
        self._waiting.append(request)
        return request

    def hold_prefix(self, tokens: Sequence[int]) -> int:
        """Computes tokens that many prompts begin with, and keeps their full pages until nothing else can be given up.
        Returns how many tokens that is."""
        self.submit(tokens, 1)
        self.run()
        held = self.manager.pin(tokens)
        self._held.append(held.id)
        return held.cached_tokens

    def run(self) -> None:
        """Steps until every request is answered."""
        while self.busy:
            self.step()

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    def step(self) -> None:
        """One pass of the model, for as many requests as there is room for."""
        self._admit()
        counts = self._schedule()
        copies = self.manager.take_copies().on_device
        if len(copies):
            quire.copy_pages(self.cache, copies)
        batch = sorted(counts, key=lambda request: request.row)  # the order of the page table's rows
        new_tokens = np.zeros(self.cache.batch, np.uint32)
        new_tokens[[request.row for request in batch]] = [counts[request] for request in batch]
        np.cumsum(new_tokens, out=self._pass.row_offsets[1:])
        tokens = [token for r in batch for token in r.tokens(r.length, r.length + counts[r])]
        ending = [request for request in batch if request.length + counts[request] == request.known]
        last = self._pass.row_offsets[[request.row + 1 for request in ending]].astype(np.intp) - 1
        logits = self._pass.run(np.array(tokens, np.intp), last)
        for request in batch:
            self.manager.advance(request.id, counts[request])
            request.length += counts[request]
        for request, row in zip(ending, logits, strict=True):
            self._answer(request, request.sampler(row))

    def _admit(self) -> None:
        """In the order of the queue, as long as there are rows, and pages for all that is known of a request."""
        while self._waiting and self._rows:
            request = self._waiting[0]
            admission = self.manager.create(request.tokens(0, request.known))
            if not self.manager.extend(admission.id, request.known - admission.cached_tokens):
                self.manager.free(admission.id)
                if self._running:
                    return
                self._make_room()
                continue
            self._waiting.popleft()
            request.id, request.row, request.length = admission.id, self._rows.pop(), admission.cached_tokens
            if request.preemptions == 0:
                request.cached = admission.cached_tokens
            self.manager.place(request.id, request.row)
            self._running.append(request)

    def _make_room(self) -> None:
        """Gives up held prefixes and all that is cached, for a request that would run alone."""
        if not self._held and not sum(self.manager.statistics()["cached_pages"]):
            raise RuntimeError("Engine: a request that fits into the pool found no pages")
        for sequence in self._held:
            self.manager.free(sequence)
        self._held.clear()
        self.manager.take_copies()  # for nobody: no request runs
        self.manager.clear_cache()

    def _schedule(self) -> dict[Request, int]:
        """New tokens of each request. Answers go on before prompts, older requests before younger ones."""
        counts: dict[Request, int] = {}
        room = self._pass.max_tokens
        for request in [r for r in self._running if r.known - r.length == 1]:
            if request in self._running and self._extend(request):
                counts[request] = 1
                room -= 1
        for request in self._running:
            if request not in counts and room > 0:  # its pages were taken when it was admitted
                counts[request] = min(request.known - request.length, room)
                room -= counts[request]
        return counts

    def _extend(self, request: Request) -> bool:
        """Whether there is a page for the next token. The youngest requests give theirs up for it, at last itself."""
        while not self.manager.extend(request.id, 1):
            youngest = self._running[-1]
            self._leave(youngest)
            youngest.preemptions += 1
            self._waiting.appendleft(youngest)
            if youngest is request:
                return False
        return True

    def _leave(self, request: Request) -> None:
        """Its full pages stay in the cache until somebody needs them."""
        self._running.remove(request)
        self._rows.append(request.row)
        self.manager.free(request.id)
        request.id = request.row = -1

    def _answer(self, request: Request, token: int) -> None:
        request.answer.append(token)
        request.on_token(token)
        if token == self.stop or len(request.answer) == request.max_new:
            self._leave(request)
            request.done = True
        else:
            self.manager.append(request.id, [token])
