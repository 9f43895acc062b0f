# SPDX-License-Identifier: Apache-2.0
"""Which keys a query sees: values that combine with `&` (both allow) and `|` (either allows)."""

from __future__ import annotations

from dataclasses import dataclass

from quire import _quire
from quire._call import refuse_value
from quire._tensor import Array

_MOST_JOINED = 64  # the limit of the kernels, who walk a mask for each key


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """A mask. Made by `causal`, `full`, `sliding_window`, `chunked`, `tree` and `key_intervals`, joined by `&` and `|`.

    Positions are absolute: new token i of a sequence stands at cache_length + i. At most 64 are joined.

    Examples
    --------
    >>> quire.causal() & (quire.sliding_window(1024) | quire.chunked(4096))
    causal & (sliding_window(1024) | chunked(4096))
    """

    kind: str
    size: int = 0
    bits: Array = None
    left: Mask | None = None
    right: Mask | None = None
    begin: Array = None
    end: Array = None

    def __and__(self, other: Mask) -> Mask:
        return _join("all_of", self, other)

    def __or__(self, other: Mask) -> Mask:
        return _join("any_of", self, other)

    def __repr__(self) -> str:
        try:
            return _quire.describe_mask(mask=self)
        except (TypeError, ValueError):  # ops refuse it; debuggers still want to show it
            return f"<quire.Mask {self.kind!r}>"

    @property
    def _joined(self) -> int:
        """How many masks it is made of."""
        return self.__dict__.get("_count", 1)


def _join(kind: str, left: Mask, right: Mask) -> Mask:
    if not isinstance(right, Mask):
        return NotImplemented
    count = left._joined + right._joined
    if count > _MOST_JOINED:
        refuse_value("mask", "mask", f"of at most {_MOST_JOINED} masks joined", str(count))
    mask = Mask(kind, left=left, right=right)
    object.__setattr__(mask, "_count", count)
    return mask


def causal() -> Mask:
    """Keys at or before the query: k <= q.

    Examples
    --------
    >>> quire.causal()
    causal
    """
    return Mask("causal")


def full() -> Mask:
    """Every key of the sequence.

    Examples
    --------
    >>> quire.full()
    full
    """
    return Mask("full")


def sliding_window(size: int) -> Mask:
    """Keys nearer than `size` on both sides: |q - k| < size.

    Examples
    --------
    >>> quire.causal() & quire.sliding_window(4096)  # the usual causal window
    causal & sliding_window(4096)
    """
    return Mask("sliding_window", size=size)


def chunked(size: int) -> Mask:
    """Keys of the query's own chunk: q // size == k // size.

    Examples
    --------
    >>> quire.causal() & quire.chunked(8192)
    causal & chunked(8192)
    """
    return Mask("chunked", size=size)


def tree(bits: Array) -> Mask:
    """All cached keys, and of the new ones those whose entry in the query's row is nonzero.

    Parameters
    ----------
    bits : uint8 or bool array [tokens, max_new_tokens]
        Row i belongs to new token i of the batch, column j to new token j of its own sequence.

    Examples
    --------
    >>> quire.tree(np.tril(np.ones((3, 3), bool)))  # three draft tokens in a line
    tree
    """
    return Mask("tree", bits=bits)


def key_intervals(begin: Array, end: Array) -> Mask:
    """Of its own sequence, token t sees the keys begin[t] <= k < end[t].

    For what no rule of positions says: images whose tokens see each other, prefixes, packed documents, keys that
    were dealt to ranks. Joined by `&` it narrows what other masks show; joined by `|` it adds to them.

    Parameters
    ----------
    begin, end : int32 array [tokens]
        Of any stride: the columns of one [tokens, 2], say. Any values: bounds outside of the sequence's keys are cut
        to them, and a token with begin >= end sees none (its output is 0).

    Examples
    --------
    >>> quire.key_intervals(np.zeros(3, np.int32), np.int32([2, 2, 3]))  # two tokens of an image, one of text
    key_intervals
    """
    return Mask("key_intervals", begin=begin, end=end)
