# SPDX-License-Identifier: Apache-2.0
"""Numbers, flags, names and views of the wrong kind: a named error in the caller's words, never one of the binding's."""

import inspect
import math

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from calls import make_calls
from problems import make_cache, offsets
from quire import _quire

HUGE = 10**5000  # more digits than Python prints

NOT_WHOLE = [None, True, 0.0, "0", b"0", [0], object(), 1j, np.float32(0), "\udc80"]
OUT_OF_RANGE = [-1, -(2**63), 2**31, 2**63, 2**64, HUGE, -HUGE]
NOT_NUMBERS = [None, False, "1", b"1", [1.0], object(), 1j]
NOT_FLAGS = [None, 0, 1, "yes", 1.0, np.zeros(1), object()]


def assert_named(raised, op, argument):
    """The four attributes, and a sentence short enough to read."""
    error = raised.value
    assert (error.op, error.argument) == (op, argument)
    assert str(error) == f"{op}: '{argument}' must be {error.expected}, got {error.actual}"
    assert len(str(error)) < 400
    assert "bad_cast" not in str(error)
    assert "incompatible function arguments" not in str(error)


def ids(values):
    """Names that pytest can print: not the values themselves."""
    return [f"{type(value).__name__}-{i}" for i, value in enumerate(values)]


def ops_with(argument):
    return [op for op, arguments in make_calls().items() if argument in arguments]


@pytest.mark.parametrize("layer", NOT_WHOLE, ids=ids(NOT_WHOLE))
@pytest.mark.parametrize("op", ops_with("layer"))
def test_layer_of_a_wrong_type(op, layer):
    with pytest.raises(TypeError) as raised:
        getattr(quire, op)(**make_calls()[op] | {"layer": layer})
    assert_named(raised, op, "layer")


@pytest.mark.parametrize("layer", OUT_OF_RANGE, ids=ids(OUT_OF_RANGE))
@pytest.mark.parametrize("op", ops_with("layer"))
def test_layer_out_of_range(op, layer):
    with pytest.raises(ValueError) as raised:
        getattr(quire, op)(**make_calls()[op] | {"layer": layer})
    assert_named(raised, op, "layer")


NUMBERS = [
    ("flash_attention", "softcap"), ("mla_decode", "scale"), ("mla_decode", "epsilon"), ("rope", "epsilon"),
    ("rope", "weight_offset"), ("sparse_mla", "scale"), ("quantize_fp8", "scale_upper_bound"),
    ("store_index_keys", "epsilon"), ("quantize_index_queries", "factor"), ("rms_norm_key", "epsilon"),
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=ids(NOT_NUMBERS))
@pytest.mark.parametrize(("op", "argument"), NUMBERS)
def test_number_of_a_wrong_type(op, argument, value):
    with pytest.raises(TypeError) as raised:
        getattr(quire, op)(**make_calls()[op] | {argument: value})
    assert_named(raised, op, argument)


@pytest.mark.parametrize(("op", "argument"), NUMBERS)
def test_number_beyond_floats(op, argument):
    with pytest.raises(ValueError) as raised:
        getattr(quire, op)(**make_calls()[op] | {argument: HUGE})
    assert_named(raised, op, argument)


FLAGS = [
    ("flash_attention", "batch_invariant"), ("flash_attention", "allow_fp8_products"), ("rope", "interleaved"), ("rope", "inverse"),
    ("rope", "rotate_key"), ("rms_norm_key", "per_head"), ("rms_norm_value", "multiply_before_cast"),
    ("fused_qkv_matmul", "allow_tf32"), ("linear", "allow_fast_accum"), ("linear", "batch_invariant"),
    ("quantize_fp8", "power_of_two_scale"), ("store_index_keys", "hadamard"),
    ("quantize_index_queries", "interleaved"), ("mla_decode", "batch_invariant"),
    ("mla_decode", "allow_fp8_products"),
]


@pytest.mark.parametrize("value", NOT_FLAGS, ids=ids(NOT_FLAGS))
@pytest.mark.parametrize(("op", "argument"), FLAGS)
def test_flag_of_a_wrong_type(op, argument, value):
    with pytest.raises(TypeError) as raised:
        getattr(quire, op)(**make_calls()[op] | {argument: value})
    assert_named(raised, op, argument)


OTHERS = [
    ("store", "side", "\udc80", TypeError, "side"),
    ("store", "side", None, TypeError, "side"),
    ("store", "side", "both", ValueError, "side"),
    ("fused_qkv_matmul", "activations", None, TypeError, "activations"),
    ("fused_qkv_matmul", "activations", "\udc80", TypeError, "activations"),
    ("fused_qkv_matmul", "activations", "int4" * 10**5, ValueError, "activations"),
    ("linear", "activations", None, TypeError, "activations"),
    ("linear", "activations", "\udc80", TypeError, "activations"),
    ("linear", "activations", "int4" * 10**5, ValueError, "activations"),
    ("rope", "mrope_sections", None, TypeError, "mrope_sections"),
    ("rope", "mrope_sections", 5, TypeError, "mrope_sections"),
    ("rope", "mrope_sections", "12", TypeError, "mrope_sections"),
    ("rope", "mrope_sections", [1, 2.5], TypeError, "mrope_sections[1]"),
    ("rope", "mrope_sections", [HUGE], ValueError, "mrope_sections[0]"),
    ("mla_indexer", "top_k", HUGE, ValueError, "top_k"),
    ("mla_indexer", "top_k", "3", TypeError, "top_k"),
    ("quantize_fp8", "group_size", True, TypeError, "group_size"),
    ("quantize_fp8", "group_size", HUGE, ValueError, "group_size"),
    ("flash_attention", "shared_prefix_pages", None, TypeError, "shared_prefix_pages"),
    ("mla_prefill_plan", "buffer_tokens", True, TypeError, "buffer_tokens"),
    ("mla_prefill_plan", "buffer_tokens", HUGE, ValueError, "buffer_tokens"),
    ("mla_prefill_plan", "max_chunks", -1, ValueError, "max_chunks"),
    ("mla_prefill_plan", "max_chunks", 2**62, ValueError, "max_chunks"),
    ("mla_prefill_plan", "max_chunks", 1.5, TypeError, "max_chunks"),
]


@pytest.mark.parametrize(("op", "argument", "value", "error", "named"), OTHERS, ids=range(len(OTHERS)))
def test_other_arguments(op, argument, value, error, named):
    with pytest.raises(error) as raised:
        getattr(quire, op)(**make_calls()[op] | {argument: value})
    assert_named(raised, op, named)


@pytest.mark.parametrize(("bound", "error"), [(-1, ValueError), (2**32, ValueError), (1.5, TypeError), (True, TypeError)])
@pytest.mark.parametrize("name", ["max_seq_length", "max_cache_length"])
def test_bounds_of_a_cache(name, bound, error):
    arguments = make_calls()["flash_attention"]
    setattr(arguments["cache"], name, bound)
    with pytest.raises(error) as raised:
        quire.flash_attention(**arguments)
    assert_named(raised, "flash_attention", f"cache.{name}")


class Masklike:
    def __init__(self, **fields):
        self.__dict__.update(fields)


BAD_MASKS = [
    (Masklike(kind=3), "mask"),
    (Masklike(kind=None), "mask"),
    (Masklike(kind="\udc80"), "mask"),
    (Masklike(kind="diagonal"), "mask"),
    (Masklike(kind="all_of"), "mask"),
    (quire.Mask("any_of", left=quire.causal()), "mask"),
    (quire.Mask("any_of", left=quire.causal(), right=7), "mask"),
    (np.dtype("f4"), "mask"),  # has a kind
    ("\udc80", "mask"),
    (None, "mask"),
    (quire.sliding_window("3"), "mask.size"),
    (quire.chunked(True), "mask.size"),
    (quire.chunked(2.5), "mask.size"),
    (quire.chunked(None), "mask.size"),
    (quire.tree(None), "mask.bits"),
    (quire.tree([[1]]), "mask.bits"),
    (quire.key_intervals(None, np.zeros(5, np.int32)), "mask.begin"),
    (quire.causal() & quire.key_intervals(np.zeros(5, np.int32), [1]), "mask.end"),
    (Masklike(kind="key_intervals", end=np.zeros(5, np.int32)), "mask.begin"),
]


@pytest.mark.parametrize(("mask", "argument"), BAD_MASKS, ids=range(len(BAD_MASKS)))
def test_mask_of_a_wrong_type(mask, argument):
    with pytest.raises(TypeError) as raised:
        quire.flash_attention(**make_calls()["flash_attention"] | {"mask": mask})
    assert_named(raised, "flash_attention", argument)


def test_a_mask_that_ops_refuse_still_prints():
    assert repr(quire.sliding_window("3")) == "<quire.Mask 'sliding_window'>"
    assert repr(quire.sliding_window(HUGE)) == "<quire.Mask 'sliding_window'>"


@pytest.mark.parametrize(
    ("quant", "error", "argument"),
    [
        (quire.Quant(None), TypeError, "quant.format"),
        (quire.Quant(4), TypeError, "quant.format"),
        (quire.Quant(b"int4"), TypeError, "quant.format"),
        (quire.Quant("\udc80"), TypeError, "quant.format"),
        (quire.Quant(np.array(["int4", "awq"])), TypeError, "quant.format"),
        (quire.Quant("int3"), ValueError, "quant.format"),
        (quire.Quant("int4", group_size="32"), TypeError, "quant.group_size"),
        (quire.Quant("int4", group_size=32.0), TypeError, "quant.group_size"),
        (quire.Quant("int4", group_size=True), TypeError, "quant.group_size"),
        (quire.Quant("int4", group_size=None), TypeError, "quant.group_size"),
        (quire.Quant("int4", group_size=HUGE), ValueError, "quant.group_size"),
        (quire.Quant("int4", group_size=32, zeros=[1]), TypeError, "quant.zeros"),
        (quire.Quant("int4", group_size=32, perm="identity"), TypeError, "quant.perm"),
        ("int4", TypeError, "quant"),
        (Masklike(format="int4", group_size=32), TypeError, "quant"),
    ],
)
def test_quant(quant, error, argument):
    arguments = make_calls()["fused_qkv_matmul"] | {"weight": np.zeros((48, 8), np.uint8), "quant": quant}
    with pytest.raises(error) as raised:
        quire.fused_qkv_matmul(**arguments)
    assert_named(raised, "fused_qkv_matmul", argument)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_threads": -1}, ValueError),
        ({"num_threads": 10**6}, ValueError),
        ({"num_threads": HUGE}, ValueError),
        ({"num_threads": 1.0}, TypeError),
        ({"num_threads": True}, TypeError),
        ({"num_threads": "2"}, TypeError),
        ({"kernel": 3}, TypeError),
        ({"kernel": b"cpu"}, TypeError),
        ({"kernel": "\udc80"}, TypeError),
        ({"stream": -1}, ValueError),
        ({"stream": 2**64}, ValueError),
        ({"stream": object()}, TypeError),
        ({"overlaps_previous": 1}, TypeError),
        ({"workspace": "scratch"}, ValueError),
        ({"workspace": np.broadcast_to(np.zeros(1, np.uint8), (1,))}, ValueError),  # numpy makes it read-only
    ],
)
def test_options_are_refused_where_they_are_given(options, error):
    with pytest.raises(error) as raised, quire.using(**options):
        pytest.fail("the block was entered")
    assert_named(raised, "using", next(iter(options)))


def test_the_largest_number_of_threads_works():
    states, lses = np.ones((2, 2000, 2, 8), np.float32), np.zeros((2, 2000, 2), np.float32)
    with quire.using(num_threads=1024):
        assert (quire.merge_states(states, lses) == 1).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_threads": 10**6}, ValueError),
        ({"num_threads": -1}, ValueError),
        ({"num_threads": None}, TypeError),
        ({"num_threads": 1.5}, TypeError),
        ({"target": None}, TypeError),
        ({"target": 3}, TypeError),
        ({"target": "abacus"}, ValueError),
    ],
)
def test_measure_cpu_ceiling(arguments, error):
    with pytest.raises(error) as raised:
        quire.measure_cpu_ceiling(**arguments)
    name = next(iter(arguments))
    assert_named(raised, "measure_cpu_ceiling", name)


@pytest.mark.parametrize("op", [None, [], 3, b"rope"])
def test_supports_wants_the_name_of_an_op(op):
    with pytest.raises(TypeError) as raised:
        quire.supports(op)
    assert_named(raised, "supports", "op")


@pytest.mark.parametrize(("latent_dim", "error"), [(True, TypeError), (1.5, TypeError), (0, ValueError), (-3, ValueError), (10**300, ValueError)])
def test_latent_dim(latent_dim, error):
    arguments = make_calls()["sparse_mla"]
    del arguments["out"]
    with pytest.raises(error) as raised:
        quire.sparse_mla(**arguments, latent_dim=latent_dim)
    assert_named(raised, "sparse_mla", "latent_dim")


def test_a_result_that_no_memory_holds():
    arguments = make_calls()["mla_indexer"]
    del arguments["out"]
    with pytest.raises(ValueError) as raised:
        quire.mla_indexer(**arguments | {"top_k": 2**61})
    assert raised.value.op == "mla_indexer"


def test_numpy_numbers_are_numbers():
    arguments = make_calls()["flash_attention"]
    expected = quire.flash_attention(**arguments).copy()
    changes = {"layer": np.uint8(0), "softcap": np.float16(0), "shared_prefix_pages": np.int64(0)}
    np.testing.assert_array_equal(quire.flash_attention(**arguments | changes), expected)
    assert math.isfinite(expected.sum())


def negated(array):
    """What torch reads as `array`, and whoever follows its address as -array."""
    return torch._neg_view(torch.from_numpy(np.ascontiguousarray(-array)))


def float_arguments(op):
    return [name for name, value in make_calls()[op].items() if getattr(value, "dtype", None) == np.float32]


CASES = [(op, argument) for op in make_calls() for argument in float_arguments(op)]


@pytest.mark.parametrize(("op", "argument"), CASES)
def test_a_pending_negation_is_refused(op, argument):
    arguments = make_calls()[op]
    view = negated(arguments[argument])
    assert view.is_neg()
    before = view.clone()
    with pytest.raises(ValueError, match="negative bit") as raised:
        getattr(quire, op)(**arguments | {argument: view})
    assert_named(raised, op, argument)
    assert torch.equal(view, before)


def test_a_pending_negation_inside_a_cache_is_refused():
    arguments = make_calls()["flash_attention"]
    arguments["cache"].blocks = negated(arguments["cache"].blocks)
    with pytest.raises(ValueError, match="resolve_neg") as raised:
        quire.flash_attention(**arguments)
    assert_named(raised, "flash_attention", "cache.blocks")


def test_the_imaginary_part_of_a_conjugate_is_such_a_view():
    states = torch.randn(2, 3, 4, 8, dtype=torch.complex64)
    lses = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="negative bit"):
        quire.merge_states(states.conj().imag, lses)
    resolved = states.conj().imag.resolve_neg()
    torch.testing.assert_close(quire.merge_states(resolved, lses), -states.imag.mean(0))


def test_a_conjugate_is_refused():
    with pytest.raises(TypeError) as raised:
        quire.merge_states(torch.zeros(2, 3, 4, 8, dtype=torch.complex64).conj(), torch.zeros(2, 3, 4))
    assert_named(raised, "merge_states", "states")


TORCH_FOREIGN = [name for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2", "bits8", "quint8")
                 if hasattr(torch, name)]
ML_FOREIGN = ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e3m4", "float8_e4m3",
              "float4_e2m1fn", "float6_e2m3fn"]


@pytest.mark.parametrize("name", TORCH_FOREIGN)
def test_torch_dtypes_that_are_none_of_ours(name):
    with pytest.raises(TypeError) as raised:
        _quire.describe_tensor(torch.empty(4, dtype=torch.uint8).view(getattr(torch, name)) if name != "quint8"
                               else torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.quint8))
    assert_named(raised, "describe_tensor", "tensor")


@pytest.mark.parametrize("name", [name for name in ML_FOREIGN if hasattr(ml_dtypes, name)])
def test_ml_dtypes_that_are_none_of_ours(name):
    with pytest.raises(TypeError, match=f"got {name}") as raised:
        _quire.describe_tensor(np.zeros(4, getattr(ml_dtypes, name)))
    assert_named(raised, "describe_tensor", "tensor")


def test_a_cache_of_another_fp8_is_not_taken_for_bytes(rng):
    cache = make_cache([1], [0], rng=rng)
    blocks = torch.zeros(tuple(cache.blocks.shape), dtype=torch.uint8).view(torch.float8_e4m3fnuz)
    cache.blocks = blocks
    cache.row_format = quire.RowFormat.uniform("fp8_e4m3", 8)
    with pytest.raises(TypeError, match="float8_e4m3fnuz"):
        quire.store(np.ones((1, 2, 8), np.float32), offsets([1]), cache, 0)
    assert not blocks.view(torch.uint8).any()


class Liar:
    """Says that it is an array, in the ways given."""

    def __init__(self, capsule=5, device=(1, 0), **fields):
        self.capsule, self.device_pair = capsule, device
        self.__dict__.update(fields)

    def __dlpack__(self, **_):
        if self.capsule is None:
            raise BufferError("not by DLPack")
        return self.capsule

    def __dlpack_device__(self):
        return self.device_pair


F4 = np.dtype("f4")
HOSTILE = [
    None, True, -1, 1.5, math.nan, HUGE, "x", "\udc80", b"x", [], [1], {}, object(), len, quire, quire.PagedKVCache,
    quire.PagedKVCache(None, None, None), quire.causal(), quire.Quant("int4"), np.float64(2), np.zeros(0),
    np.zeros((2, 2), complex), np.array("a"), np.array([object()]), np.zeros((4, 2, 8), ">f4"),
    torch.zeros(2, device="meta"), torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,)),
    Liar(), Liar(device="cpu"), Liar(device=None, shape=None, dtype=3),
    Liar(None, dtype=F4, __array_interface__=3), Liar(None, dtype=F4, __array_interface__={}),
    Liar(None, dtype=F4, __array_interface__={"data": (0, False)}, shape=5, strides=None),
    Liar(None, dtype=F4, __array_interface__={"data": (64, False)}, shape=(2, 2), strides=(4,)),
]


@pytest.mark.parametrize("op", make_calls())
def test_every_argument_of_every_op(op):
    """Whatever comes in place of one argument: the call works, or raises an error of this op."""
    function = getattr(quire, op)
    for name in inspect.signature(function).parameters:
        for number, value in enumerate(HOSTILE):
            arguments = make_calls()[op] | {name: value}
            try:
                function(**arguments)
            except (TypeError, ValueError, NotImplementedError) as error:
                assert getattr(error, "op", None) == op, (name, number, str(error))
                assert len(str(error)) < 600, (name, number)
                assert "bad_cast" not in str(error), (name, number)


@pytest.mark.parametrize("field", list(vars(quire.PagedKVCache(None, None, None))))
def test_every_field_of_a_cache(field):
    for number, value in enumerate(HOSTILE):
        arguments = make_calls()["flash_attention"]
        setattr(arguments["cache"], field, value)
        try:
            quire.flash_attention(**arguments)
        except (TypeError, ValueError, NotImplementedError) as error:
            assert getattr(error, "op", None) == "flash_attention", (number, str(error))
