# SPDX-License-Identifier: Apache-2.0
"""PageManager against a plain model: random histories over a memory whose contents are known.

A slot of a page holds a number that stands for everything its K and V depend on: scope, keys and all tokens up to its
own. Whatever the manager shares, copies, evicts and brings back, every sequence must find its own numbers in its pages.
"""

import os
import random

import numpy as np
import pytest

import quire

# The recorded run: QUIRE_PAGE_STEPS=100000, 1.1 million steps.
STEPS = int(os.environ.get("QUIRE_PAGE_STEPS", "8000"))
VOCABULARY = 3  # few tokens: prefixes meet all the time


class Model:
    """Sequences, page contents and copies, as plainly as can be."""

    def __init__(self, seed, groups, pools, **options):
        self.random = random.Random(seed)
        self.groups, self.pools = groups, pools
        self.manager = quire.PageManager(groups=groups, pools=pools, **options)
        sizes = [max(g.page_size for g in groups if g.pool == p) for p in range(len(pools))]
        # By pool: groups may share a pool's ids, but never a page.
        self.device = [np.full((n, s), -1, np.int64) for (n, _), s in zip(pools, sizes, strict=True)]
        self.host = [np.full((h, s), -1, np.int64) for (_, h), s in zip(pools, sizes, strict=True)]
        self.live = {}  # id → (tokens, numbers, scope, keys)
        self.pins = set()
        rows, columns = 4, 64
        self.tables = [np.zeros((rows, columns), np.uint32) for _ in groups]
        self.lengths = np.zeros(rows, np.uint32)
        self.manager.bind_tables(self.tables, self.lengths)
        self.rows = {}

    def numbers(self, tokens, scope, keys, before=()):
        numbers = list(before)
        for at in range(len(numbers), len(tokens)):
            here = tuple(key for key in keys if key[0] <= at < key[1])
            numbers.append(hash((numbers[-1] if numbers else hash(scope), tokens[at], here)))
        return numbers

    def copy(self):
        for pool in range(len(self.pools)):
            copies = self.manager.take_copies(pool)
            for source, target in copies.to_host:
                self.host[pool][target] = self.device[pool][source]
            for source, target in copies.from_host:
                self.device[pool][target] = self.host[pool][source]
            # One step: no page is a target twice, or a source behind it.
            targets = copies.on_device[:, 1].tolist()
            assert len(set(targets)) == len(targets)
            assert not set(targets) & set(copies.on_device[:, 0].tolist())
            for source, target in copies.on_device:
                self.device[pool][target] = self.device[pool][source]

    def write(self, sequence, first, end):
        numbers = self.live[sequence][1]
        for index, group in enumerate(self.groups):
            pages = self.manager.pages(sequence, index)
            for at in range(first, end):
                self.device[group.pool][pages[at // group.page_size], at % group.page_size] = numbers[at]

    @staticmethod
    def first_needed(group, length):
        if group.rule == "full":
            return 0
        if group.rule == "sliding_window":
            return max(length - group.reach + 1, 0)
        return length // group.reach * group.reach

    def check(self, sequence):
        tokens, numbers, _, _ = self.live[sequence]
        length = self.manager.length(sequence)
        assert self.manager.tokens(sequence).tolist() == tokens
        for index, group in enumerate(self.groups):
            pages = self.manager.pages(sequence, index)
            for at in range(self.first_needed(group, length), length):
                page = pages[at // group.page_size]
                assert page != quire.NO_PAGE
                found = self.device[group.pool][page, at % group.page_size]
                assert found == numbers[at], (sequence, index, at)
        if sequence in self.rows:
            row = self.rows[sequence]
            assert self.lengths[row] == length
            for index, table in enumerate(self.tables):
                pages = self.manager.pages(sequence, index)
                np.testing.assert_array_equal(table[row, : len(pages)], pages)
                assert (table[row, len(pages) :] == quire.NO_PAGE).all()

    def check_counts(self):
        counts = self.manager.statistics()
        used = [set() for _ in self.pools]
        for sequence in [*self.live, *self.pins]:
            for index, group in enumerate(self.groups):
                used[group.pool].update(self.manager.pages(sequence, index).tolist())
        for pool, (pages, _) in enumerate(self.pools):
            used[pool].discard(quire.NO_PAGE)
            assert counts["used_pages"][pool] == len(used[pool])
            assert counts["free_pages"][pool] + counts["cached_pages"][pool] + len(used[pool]) == pages
        assert counts["sequences"] == len(self.live) + len(self.pins)

    def draw_tokens(self, most):
        return [self.random.randrange(VOCABULARY) for _ in range(self.random.randint(1, most))]

    def draw_keys(self, count):
        if self.random.random() < 0.8:
            return []
        first = self.random.randrange(count)
        return [(first, first + self.random.randint(1, 4), self.random.choice("ab"))]

    def create(self):
        if self.live and self.random.random() < 0.6:
            base = self.random.choice(list(self.live.values()))
            tokens = base[0][: self.random.randint(1, len(base[0]))] + self.draw_tokens(6)
            scope, keys = base[2], base[3]
        else:
            tokens, scope = self.draw_tokens(40), self.random.choice(["", "", "x"])
            keys = self.draw_keys(len(tokens))
        found = self.manager.probe(tokens, scope=scope, keys=keys)
        made = self.manager.create(tokens, scope=scope, keys=keys, priority=self.random.randrange(8))
        assert made.cached_tokens == found.cached_tokens
        assert made.cached_tokens < len(tokens)
        self.live[made.id] = (tokens, self.numbers(tokens, scope, keys), scope, keys)
        self.copy()
        return made.id

    def compute(self, sequence):
        """A chunk of prefill, or a step of decode."""
        tokens, numbers, scope, keys = self.live[sequence]
        length = self.manager.length(sequence)
        if length == len(tokens) or self.random.random() < 0.2:
            more = self.draw_tokens(3)
            self.manager.append(sequence, more)
            tokens += more
            numbers[:] = self.numbers(tokens, scope, keys, numbers)
        count = self.random.randint(1, len(tokens) - length)
        before = self.manager.pages(sequence).tolist()
        if not self.manager.extend(sequence, count):
            assert self.manager.pages(sequence).tolist() == before
            return
        self.copy()
        self.write(sequence, length, length + count)
        self.manager.advance(sequence, count)

    def decode(self):
        ids = self.random.sample(list(self.live), min(len(self.live), 3))
        ids = [i for i in ids if self.manager.length(i) == len(self.live[i][0])]
        sampled = [self.random.randrange(VOCABULARY) for _ in ids]
        served = self.manager.step(ids, np.array(sampled, np.int32) if sampled else [])
        for sequence, token in zip(ids[:served], sampled, strict=False):
            tokens, numbers, scope, keys = self.live[sequence]
            tokens.append(token)
            numbers[:] = self.numbers(tokens, scope, keys, numbers)
        self.copy()
        for sequence in ids[:served]:
            self.write(sequence, len(self.live[sequence][0]) - 1, len(self.live[sequence][0]))
        self.manager.advance_all(ids[:served])

    def trim(self, sequence):
        tokens, numbers, _, _ = self.live[sequence]
        length = self.random.randint(1, len(tokens))
        try:
            self.manager.trim(sequence, length)
        except ValueError:  # its window's pages were given back
            assert any(g.rule != "full" for g in self.groups)
            return
        del tokens[length:], numbers[length:]

    def fork(self, sequence):
        tokens, numbers, scope, keys = self.live[sequence]
        self.live[self.manager.fork(sequence)] = (list(tokens), list(numbers), scope, keys)

    def pin(self):
        tokens, _, scope, keys = self.random.choice(list(self.live.values()))
        made = self.manager.pin(tokens, scope=scope, keys=keys)
        self.copy()
        self.pins.add(made.id)

    def place(self, sequence):
        if len(self.manager.pages(sequence)) > 60:
            return
        row = self.random.randrange(len(self.lengths))
        self.manager.place(sequence, row)
        self.rows = {s: r for s, r in self.rows.items() if r != row and s != sequence} | {sequence: row}

    def free(self, sequence):
        self.manager.free(sequence)
        del self.live[sequence]
        self.rows.pop(sequence, None)

    def step(self):
        ids = list(self.live)
        draw = self.random.random()
        if not ids or (draw < 0.12 and len(ids) < 12):
            sequence = self.create()
        else:
            sequence = self.random.choice(ids)
            if draw < 0.55:
                self.compute(sequence)
            elif draw < 0.70:
                self.decode()
            elif draw < 0.76:
                self.trim(sequence)
            elif draw < 0.80 and len(ids) < 12:
                self.fork(sequence)
            elif draw < 0.82 and len(self.pins) < 2:
                self.pin()
            elif draw < 0.84 and self.pins:
                self.manager.free(self.pins.pop())
            elif draw < 0.90:
                self.place(sequence)
            elif len(self.live[sequence][0]) > 60 or draw > 0.94:
                self.free(sequence)
                return
        if sequence in self.live:
            self.check(sequence)


FULL = quire.PageGroup(page_size=4)
HISTORIES = {
    "one group": ([FULL], [(64, 0)], {}),
    "few pages": ([FULL], [(12, 0)], {}),
    "host tier": ([FULL], [(16, 24)], {}),
    "host smaller than the device": ([FULL], [(24, 5)], {}),
    "window": ([quire.PageGroup("sliding_window", 4, 9)], [(40, 0)], {}),
    "full and window": ([FULL, quire.PageGroup("sliding_window", 4, 6)], [(80, 0)], {}),
    "full and chunk, two pools": ([FULL, quire.PageGroup("chunk", 4, 12, 1)], [(40, 0), (24, 16)], {}),
    "two page sizes": ([quire.PageGroup(page_size=8), quire.PageGroup("sliding_window", 4, 10, 1)], [(32, 8), (40, 8)], {}),
    "no partial pages": ([FULL], [(40, 0)], {"reuse_partial_pages": False}),
    "no prefixes": ([FULL], [(40, 0)], {"cache_prefixes": False}),
    "pages of one token": ([quire.PageGroup(page_size=1)], [(90, 30)], {}),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_random_histories(name):
    groups, pools, options = HISTORIES[name]
    model = Model(f"{name} 7", groups, pools, **options)
    for at in range(STEPS):
        model.step()
        if at % 16 == 0:
            model.check_counts()
        if at % 997 == 0:
            model.manager.clear_cache()
            for sequence in model.live:
                model.check(sequence)
    for sequence in list(model.live):
        model.check(sequence)
        model.free(sequence)
    for pin in model.pins:
        model.manager.free(pin)
    model.pins.clear()
    model.check_counts()
    model.manager.clear_cache()
    counts = model.manager.statistics()
    assert counts["free_pages"] == [pages for pages, _ in pools]
    assert counts["host_pages"] == [0] * len(pools)
    if options.get("cache_prefixes", True):
        assert counts["hit_tokens"] > 0


def test_hits_are_all_that_could_be_hit():
    """Nothing is evicted: what is found is the longest prefix that anybody has computed, in whole pages."""
    draw = random.Random(3)
    manager = quire.PageManager(4096, 4, reuse_partial_pages=False)
    stored = set()
    for _ in range(300):
        tokens = [draw.randrange(2) for _ in range(draw.randint(1, 40))]
        best = max((n for n in range(0, len(tokens), 4) if n == 0 or tuple(tokens[:n]) in stored), default=0)
        made = manager.create(tokens)
        assert made.cached_tokens == best
        assert manager.extend(made.id, len(tokens) - best)
        manager.advance(made.id, len(tokens) - best)
        stored.update(tuple(tokens[:n]) for n in range(4, len(tokens) + 1, 4))
        if draw.random() < 0.7:
            manager.free(made.id)


def test_tokens_may_be_lists_and_arrays():
    manager = quire.PageManager(16, 4)
    made = manager.create(np.arange(9, dtype=np.int64))
    assert manager.tokens(made.id).tolist() == list(range(9))
    manager.append(made.id, (1, 2))
    assert manager.tokens(made.id).tolist() == [*range(9), 1, 2]
    with pytest.raises(TypeError, match="tokens"):
        manager.append(made.id, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="tokens"):
        manager.append(made.id, np.array([2**40]))
    with pytest.raises((TypeError, ValueError), match="tokens"):
        manager.append(made.id, ["a"])
    assert manager.length(made.id) == 0


def test_errors_name_what_was_wrong():
    with pytest.raises(TypeError, match="pages"):
        quire.PageManager()
    with pytest.raises(ValueError, match=r"PageManager: 'groups\[0\].page_size'"):
        quire.PageManager(groups=[quire.PageGroup(page_size=4), quire.PageGroup(page_size=6)], pools=[(8, 0)])
    with pytest.raises(ValueError, match="rule"):
        quire.PageManager(groups=[quire.PageGroup("ring")], pools=[(8, 0)])
    manager = quire.PageManager(8, 4)
    with pytest.raises(ValueError, match="PageManager.extend: 'sequence'"):
        manager.extend(5, 1)
    made = manager.create([1, 2, 3])
    with pytest.raises(ValueError, match="PageManager.advance: 'count'"):
        manager.advance(made.id, 1)
    with pytest.raises(ValueError, match="bound before"):
        manager.place(made.id, 0)
    with pytest.raises(ValueError, match="keys"):
        manager.create([1, 2, 3], keys=[(2, 2, "image")])
