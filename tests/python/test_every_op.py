# SPDX-License-Identifier: Apache-2.0
"""What holds for every op: each argument spoiled in each way is named, and nothing is written; views do as copies do."""

import inspect

import numpy as np
import pytest
import quire
import torch
from calls import make_calls

SPOILERS = {
    "float64": lambda a: a.astype(np.float64),
    "complex": lambda a: a.astype(np.complex64),
    "int64": lambda a: np.zeros(a.shape, np.int64),
    "a_list": lambda a: a.tolist(),
    "a_number": lambda a: 3,
    "a_str": lambda a: "x",
    "one_rank_more": lambda a: a[None].copy(),
    "no_rank": lambda a: np.zeros((), a.dtype),
    "negative_stride": lambda a: np.concatenate((a, a))[::-1],
    "not_aligned": lambda a: np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape) if a.itemsize > 1 else 3,
    "objects": lambda a: np.full(a.shape, None, object),
    "on_no_device": lambda a: torch.empty(a.shape, device="meta"),
    "sparse": lambda a: torch.zeros(a.shape).to_sparse(),
    "conjugate": lambda a: torch.zeros(a.shape, dtype=torch.complex64).conj(),
}


def places(op):
    """(argument, field of a cache or None) of everything that is an array."""
    for name, value in make_calls()[op].items():
        if isinstance(value, quire.PagedKVCache):
            fields = ("blocks", "cache_lengths", "page_table") + (("scales",) if value.scales is not None else ())
            yield from ((name, field) for field in fields)
        elif isinstance(value, np.ndarray):
            yield name, None


def arrays(arguments):
    for value in arguments.values():
        parts = (value.blocks, value.scales) if isinstance(value, quire.PagedKVCache) else (value,)
        yield from (part for part in parts if isinstance(part, np.ndarray))


def replace(arguments, place, change):
    name, field = place
    if field is None:
        arguments[name] = change(arguments[name])
    else:
        setattr(arguments[name], field, change(getattr(arguments[name], field)))


def test_every_op_is_here():
    assert set(make_calls()) == set(quire.info()["ops"])


@pytest.mark.parametrize("with_out", [True, False], ids=["into_out", "allocating"])
@pytest.mark.parametrize("op", make_calls())
def test_a_spoiled_argument_is_named_and_nothing_is_written(op, with_out):
    for place in places(op):
        if place[0] == "out" and not with_out:
            continue
        for spoiler, change in SPOILERS.items():
            arguments = make_calls()[op] | ({"latent_dim": 16} if op == "sparse_mla" else {})
            if not with_out:
                arguments.pop("out", None)
            replace(arguments, place, change)
            before = [array.tobytes() for array in arrays(arguments)]
            with pytest.raises((ValueError, TypeError)) as raised:
                getattr(quire, op)(**arguments)
            where = f"{op}({'.'.join(filter(None, place))}: {spoiler}): {raised.value}"
            # mla_prefill makes its plan first, and the plan has arguments of the same names.
            assert getattr(raised.value, "op", None) in (op, "mla_prefill_plan"), where
            assert raised.value.argument and raised.value.expected and raised.value.actual, where
            parameter = raised.value.argument.partition(".")[0]
            assert parameter in inspect.signature(getattr(quire, op)).parameters, where
            assert [array.tobytes() for array in arrays(arguments)] == before, where


@pytest.mark.parametrize("op", make_calls())
@pytest.mark.parametrize("wrong", [None, 3, "x", np.zeros(3)], ids=["none", "number", "str", "array"])
def test_what_is_no_cache_is_refused_by_name(op, wrong):
    for name in {"cache", "index_cache"} & set(make_calls()[op]):
        arguments = make_calls()[op] | {name: wrong}
        arguments.pop("out", None)
        with pytest.raises(TypeError, match=rf"'{name}' must be a quire.PagedKVCache, got"):
            getattr(quire, op)(**arguments | ({"latent_dim": 16} if op == "sparse_mla" else {}))


def padded(array):
    """The same numbers with gaps between rows, planes and so on."""
    room = np.zeros([size + 1 for size in array.shape[:-1]] + [array.shape[-1] + 3], array.dtype)
    view = room[tuple(slice(size) for size in array.shape)]
    view[...] = array
    return view


@pytest.mark.parametrize("op", make_calls())
def test_views_with_gaps_do_as_dense_arrays_do(op):
    dense, gapped = make_calls()[op], make_calls()[op]
    for place in places(op):
        replace(gapped, place, padded)
    getattr(quire, op)(**dense)
    getattr(quire, op)(**gapped)
    for expected, actual in zip(arrays(dense), arrays(gapped), strict=True):
        assert actual.tobytes() == expected.tobytes(), op


@pytest.mark.parametrize("op", make_calls())
def test_numbers_of_numpy_are_numbers(op):
    plain, arguments = make_calls()[op], make_calls()[op]
    kinds = {int: np.int64, float: np.float32}
    for name, value in arguments.items():
        if type(value) in kinds:
            arguments[name] = kinds[type(value)](value)
    if "scale" in plain and isinstance(plain["scale"], float):
        plain["scale"] = float(arguments["scale"])
    getattr(quire, op)(**plain)
    getattr(quire, op)(**arguments)
    for expected, actual in zip(arrays(plain), arrays(arguments), strict=True):
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("op", "argument", "value"),
    [
        ("fused_qkv_matmul", "quant", "int4"),
        ("linear", "quant", "int4"),
        ("sparse_mla", "extra", "x"),
        ("sparse_mla", "latent_dim", "x"),
        ("mla_indexer", "top_k", "x"),
        ("mla_indexer", "top_k", 2**70),
        ("quantize_fp8", "group_size", "x"),
        ("quantize_fp8", "dtype", "int8"),
    ],
)
def test_a_value_that_sizes_the_result_is_refused_by_name(op, argument, value):
    arguments = make_calls()[op] | {argument: value}
    arguments.pop("out")
    with pytest.raises((ValueError, TypeError), match=f"^{op}: '{argument}' must be .*, got ") as raised:
        getattr(quire, op)(**arguments)
    assert raised.value.argument == argument
