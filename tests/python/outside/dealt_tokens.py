# SPDX-License-Identifier: Apache-2.0
"""What one rank does of context-parallel attention: it stores the tokens that are its own, and attends with the others.

The functions run in the processes of `ranks.py`. Every rank draws the whole problem, so that queries and new rows are
the same everywhere, and keeps of the rows what `step.store` leaves in its pool; the rest of the pool is NaN.
"""

import torch

import quire
from quire.integrations.context_parallel import ContextParallel

from . import seeded
from .attention_problem import LAYER, AttentionProblem
from .page_pool import PagePool, offsets_of

LATENT, ROPE, NOPE, VALUE = 32, 16, 24, 20


class Dealt:
    """A rank's pages of sequences, dealt by a ContextParallel."""

    def __init__(self, group, totals, interleave, *, row, page_size=4, **pool):
        self.ranks = ContextParallel(group, interleave=interleave)
        own = [self.ranks.sharding.local_length(total, self.ranks.rank) for total in totals]
        self.pool = PagePool(capacities=own, row=row, page_size=page_size, sentinel=-1, **pool)
        self.table = torch.tensor(self.pool.table, dtype=torch.int32)
        self.cache = quire.PagedKVCache(self.pool.blocks, scales=self.pool.scales)

    def step(self, cached, new, chosen=None, padding=0):
        chosen = list(range(len(cached))) if chosen is None else chosen
        return self.ranks.step(
            offsets_of([new[i] for i in chosen]),
            torch.tensor([cached[i] for i in chosen], dtype=torch.int32),
            self.table[chosen],
            tokens=sum(new[i] for i in chosen) + padding,
            page_size=self.pool.page_size,
        )

    def rows_written(self) -> int:
        return int((~self.pool.blocks[:, 0, LAYER, :, 0, 0].float().isnan()).sum())


def fill(dealt, cached, new, k, v=None):
    """Store the cached tokens in one step and the new ones in the next; returns that one."""
    for before, count in ([0] * len(cached), cached), (cached, new):
        step = dealt.step(before, count)
        parts = [
            None if rows is None else torch.cat([x[b : b + n] for x, b, n in zip(rows, before, count)])
            for rows in (k, v)
        ]
        step.store(*parts, dealt.cache, LAYER)
    return step


def dealt_problem(group, problem: AttentionProblem, interleave, **pool):
    dealt = Dealt(
        group,
        problem.totals,
        interleave,
        row=problem.head_dim,
        kv_heads=problem.kv_heads,
        page_size=problem.page_size,
        **({"dtype": problem.dtype} | pool),
    )
    return dealt, fill(dealt, problem.cached, problem.new, problem.k, problem.v)


def attend(group, problem, interleave, arguments):
    """out, LSE, and how many rows this rank has."""
    problem = AttentionProblem(**problem)
    dealt, step = dealt_problem(group, problem, interleave)
    out, lse = step.attend(torch.cat(problem.q), dealt.cache, LAYER, return_lse=True, **arguments)
    return out.cpu(), lse.cpu(), dealt.rows_written()


def attend_chunk(group, problem, interleave, arguments):
    """The new tokens are not in the pages of any rank."""
    problem = AttentionProblem(**problem)
    dealt, _ = dealt_problem(group, problem, interleave)
    new = [torch.cat([x[n:] for x, n in zip(side, problem.cached)]) for side in (problem.k, problem.v)]
    step = dealt.step(problem.cached, problem.new)
    forget(dealt, step)
    out, lse = step.attend_chunk(torch.cat(problem.q), *new, dealt.cache, LAYER, return_lse=True, **arguments)
    return out.cpu(), lse.cpu()


def forget(dealt, step):
    """NaN where new tokens were stored."""
    slots = step.slots[step.slots >= 0]
    size = dealt.pool.page_size
    dealt.pool.blocks[slots // size, :, LAYER, slots % size] = float("nan")


def attend_in_batches(group, problem, interleave, batches, method, arguments):
    """The same sequences in batches of some of them: {batch: result of each of its sequences}."""
    problem = AttentionProblem(**problem)
    dealt, _ = dealt_problem(group, problem, interleave)
    results = {}
    for chosen in batches:
        step = dealt.step(problem.cached, problem.new, list(chosen))
        q = torch.cat([problem.q[i] for i in chosen])
        rows = []
        if method == "attend_chunk":
            sides = (problem.k, problem.v)
            rows = [torch.cat([x[i][problem.cached[i] :] for i in chosen]) for x in sides]
        out = getattr(step, method)(q, *rows, dealt.cache, LAYER, batch_invariant=True, **arguments)
        results[chosen] = [part.cpu() for part in out.split([problem.new[i] for i in chosen])]
    return results


def attend_padded(group, problem, interleave, padding):
    """A step with rows behind the last token: they see nothing, and are stored nowhere."""
    problem = AttentionProblem(**problem)
    dealt, _ = dealt_problem(group, problem, interleave)
    step = dealt.step(problem.cached, problem.new, padding=padding)
    q = torch.cat((torch.cat(problem.q), torch.ones(padding, problem.heads, problem.head_dim)))
    out, lse = step.attend(q, dealt.cache, LAYER, return_lse=True)
    return out, lse, step.slots


def attend_quantized(group, problem, interleave):
    problem = AttentionProblem(**problem)
    dealt, step = dealt_problem(group, problem, interleave, dtype=torch.float8_e4m3fn, scale_slots=1)
    return step.attend(torch.cat(problem.q), dealt.cache, LAYER)


class LatentProblem:
    """Rows of latents as a DeepSeek layer caches them, queries of few new tokens, and the up-projection."""

    def __init__(self, cached, new, heads=4, page_size=4):
        generator = seeded(8)
        self.cached, self.new, self.heads, self.page_size = cached, new, heads, page_size
        self.totals = [before + count for before, count in zip(cached, new)]
        self.rows = [torch.randn(total, 1, LATENT + ROPE, generator=generator) for total in self.totals]
        self.q = torch.randn(sum(new), heads, NOPE + ROPE, generator=generator)
        self.kv_b_proj = torch.randn(heads * (NOPE + VALUE), LATENT, generator=generator) * LATENT**-0.5
        self.scale = (NOPE + ROPE) ** -0.5

    @property
    def weights(self):
        found = quire.absorb_kv_b_proj(self.kv_b_proj, heads=self.heads, nope=NOPE)
        return {"w_uk": found.w_uk, "w_uv": found.w_uv}

    def absorbed_q(self):
        return torch.cat(
            (torch.einsum("thn,hln->thl", self.q[..., :NOPE], self.weights["w_uk"]), self.q[..., NOPE:]), dim=-1
        )

    def one_process(self, is_absorbed, **arguments):
        """mla_decode over one pool that has all rows."""
        pool = PagePool(self.totals, LATENT + ROPE, page_size=self.page_size, is_mla=True)
        for sequence, rows in enumerate(self.rows):
            pool.write(LAYER, 0, sequence, 0, rows)
        q, more = self._form(is_absorbed)
        return quire.mla_decode(
            q, offsets_of(self.new), pool.cache(self.cached), LAYER, scale=self.scale, **more, **arguments
        )

    def exact(self, is_absorbed, sinks=None):
        """The same in float64: out and LSE."""
        outs, lses = [], []
        queries = self.absorbed_q().double().split(self.new)
        for q, rows, before in zip(queries, self.rows, self.cached):
            keys = rows[:, 0].double()
            scores = torch.einsum("qhd,kd->qhk", q, keys) * self.scale
            hidden = torch.arange(len(keys)) > before + torch.arange(len(q))[:, None]
            scores = scores.masked_fill(hidden[:, None], float("-inf"))
            lse = scores.logsumexp(-1)
            if sinks is not None:
                lse = torch.logaddexp(lse, sinks.double())
            out = torch.einsum("qhk,kl->qhl", (scores - lse[..., None]).exp(), keys[:, :LATENT])
            outs.append(out if is_absorbed else torch.einsum("qhl,hvl->qhv", out, self.weights["w_uv"].double()))
            lses.append(lse)
        return torch.cat(outs), torch.cat(lses)

    def _form(self, is_absorbed):
        return (self.absorbed_q(), {"latent_dim": LATENT}) if is_absorbed else (self.q, self.weights)

    def on_a_rank(self, group, interleave, is_absorbed, **arguments):
        pool = {"page_size": self.page_size, "is_mla": True}
        dealt = Dealt(group, self.totals, interleave, row=LATENT + ROPE, **pool)
        step = fill(dealt, self.cached, self.new, self.rows)
        q, more = self._form(is_absorbed)
        return step.attend_latent(q, dealt.cache, LAYER, scale=self.scale, return_lse=True, **more, **arguments)


def attend_latent(group, problem, interleave, is_absorbed, arguments):
    return LatentProblem(**problem).on_a_rank(group, interleave, is_absorbed, **arguments)


def refusals(group):
    """The words of each error: (argument, message)."""
    problem = AttentionProblem(cached=(5, 3), new=(1, 1), heads=6, kv_heads=2)
    dealt, step = dealt_problem(group, problem, 2)
    q, rows = torch.cat(problem.q), torch.zeros(2, 2, problem.head_dim)
    own_scales = quire.PagedKVCache(dealt.pool.blocks, scales_page_table=dealt.table)
    calls = {
        "alibi": lambda: step.attend(q, dealt.cache, LAYER, alibi_slopes=torch.ones(6)),
        "alibi of a chunk": lambda: step.attend_chunk(
            q, rows, rows, dealt.cache, LAYER, alibi_slopes=torch.ones(6)
        ),
        "window of a chunk": lambda: step.attend_chunk(q, rows, rows, dealt.cache, LAYER, window=4),
        "window of nothing": lambda: step.attend(q, dealt.cache, LAYER, window=0),
        "heads": lambda: step.attend(q, dealt.cache, LAYER, by_heads=True),
        "scales": lambda: step.attend(q, own_scales, LAYER),
        "interleave": lambda: ContextParallel(group, interleave=0),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except (ValueError, TypeError) as error:
            found[name] = (error.argument, str(error))
    return found
