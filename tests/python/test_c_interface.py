# SPDX-License-Identifier: Apache-2.0
"""The C interface of libquire.so, called through ctypes: the bits of the Python module, and its errors as a status."""

import ctypes
import re
import shutil
import subprocess
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import quire
from c_interface import ROOT, Call, DLTensor, Interface, library_path
from calls import CACHED, NEW, TOKENS, make_calls
from problems import make_cache, offsets

if library_path() is None:
    pytest.skip("libquire.so was not built (QUIRE_BUILD_SHARED=OFF)", allow_module_level=True)

C = Interface(library_path())
OPS = list(make_calls())
STATUS = {ValueError: C.numbers["QUIRE_INVALID_VALUE"], TypeError: C.numbers["QUIRE_INVALID_TYPE"]}


def arrays(arguments):
    """Every array of a call, those of its caches too."""
    for value in arguments.values():
        is_cache = isinstance(value, quire.PagedKVCache)
        parts = (value.blocks, value.scales, value.value_blocks) if is_cache else (value,)
        yield from (part for part in parts if isinstance(part, np.ndarray))


def contents(arguments):
    return [array.tobytes() for array in arrays(arguments)]


def run_python(op, arguments):
    result = getattr(quire, op)(**arguments)
    if op == "mla_prefill_plan":
        return [getattr(result, name).tobytes() for name in ("buffer_row_offsets", "cache_offsets", "buffer_lengths")]
    return contents(arguments)


def results_of(call, arguments):
    return [array.tobytes() for array in call.plan.values()] if call.op == "mla_prefill_plan" else contents(arguments)


def check_bits(op, make):
    """make() gives the arguments, the same numbers every time: the op through C and through Python."""
    expected, arguments = run_python(op, make()), make()
    call = Call(C, op, arguments)
    assert call.run() == 0, C.last_error()
    assert results_of(call, arguments) == expected
    if op != "mla_prefill_plan":
        assert expected != contents(make()), "the op changed nothing"


def test_the_structs_lie_as_recorded():
    for name, struct in C.structs.items():
        assert ctypes.sizeof(struct) == C.sizes[name]
        assert [getattr(struct, field).offset for _, field, _ in C.fields[name]] == [o for o, _, _ in C.fields[name]]
    assert C.library.quire_c_abi_version() == 1
    assert C.library.quire_version().decode() == quire.__version__


def test_every_op_is_here():
    names = []
    while (name := C.library.quire_op_name(len(names) + 1)) is not None:
        names.append(name.decode())
    assert set(names) == set(OPS) == set(quire.info()["ops"])


@pytest.mark.parametrize("op", OPS)
def test_an_op_gives_the_bits_of_the_python_module(op):
    check_bits(op, lambda: make_calls()[op])


@pytest.mark.parametrize("op", OPS)
def test_a_prepared_op_gives_the_same_bits(op):
    expected, arguments = run_python(op, make_calls()[op]), make_calls()[op]
    call, prepared = Call(C, op, arguments), ctypes.c_void_p()
    assert C.library.quire_prepare(call.number, ctypes.byref(call.args), None, ctypes.byref(prepared)) == 0, C.last_error()
    fresh = make_calls()[op]  # at other addresses
    again = Call(C, op, fresh)
    try:
        assert C.library.quire_run(prepared, ctypes.byref(again.args), None) == 0, C.last_error()
        text = C.library.quire_prepared_describe(prepared).decode()
        assert text.startswith(f"{op}: cpu/")
        assert C.library.quire_prepared_workspace_bytes(prepared) == 0
    finally:
        C.library.quire_prepared_free(prepared)
    assert results_of(again, fresh) == expected


@pytest.mark.parametrize("op", OPS)
def test_supports_says_what_the_python_module_says(op):
    call, text = Call(C, op, make_calls()[op]), ctypes.create_string_buffer(4096)
    assert C.library.quire_supports(call.number, ctypes.byref(call.args), None, text, len(text)) == 0, C.last_error()
    assert text.value.decode() == str(quire.supports(op, **make_calls()[op]))

    context = call.make("quire_context", {"kernel": b"nowhere"})
    status = C.library.quire_supports(call.number, ctypes.byref(call.args), context, text, len(text))
    assert status == C.numbers["QUIRE_UNSUPPORTED"]
    arguments = make_calls()[op]
    if op == "mla_prefill":  # which would plan with the same kernel first
        arguments["plan"] = quire.mla_prefill_plan(arguments["row_offsets"], arguments["cache"], 0)
    with quire.using(kernel="nowhere"):
        assert text.value.decode() == str(quire.supports(op, **arguments))


def required_fields(struct):
    """Pointers before the words that say that the rest may be left out, as the header has them."""
    for header in (ROOT / "include/quire/c").glob("*.h"):
        match = re.search(rf"struct {struct} \{{(.*?)\n\}}", header.read_text(), re.S)
        if match:
            required = match[1].partition("The rest is optional")[0]
            return re.findall(r"^  const (?:DLTensor|quire_\w+)\* (\w+);", required, re.M)
    raise AssertionError(struct)


@pytest.mark.parametrize("op", OPS)
def test_what_is_missing_is_named(op):
    arguments = make_calls()[op]
    call = Call(C, op, arguments)
    before = contents(arguments)
    names = required_fields(type(call.args).__name__)
    assert len(names) >= 2
    for name in names:
        lacking = type(call.args).from_buffer_copy(call.args)
        setattr(lacking, name, None)
        assert getattr(C.library, "quire_" + op)(lacking, None) == C.numbers["QUIRE_INVALID_VALUE"]
        found_op, argument, _, actual = C.last_error()
        assert (found_op, argument, actual) == (op, name, "NULL")
    assert contents(arguments) == before


# C counts the chunks of a prefill before there is a plan to be filled, and so refuses bad offsets of both ops elsewhere.
@pytest.mark.parametrize("op", [op for op in OPS if op != "mla_prefill_plan"])
def test_errors_are_those_of_the_python_module(op):
    names = [name for name, value in make_calls()[op].items() if isinstance(value, np.ndarray)]
    for name in (name for name in names if (op, name) != ("mla_prefill", "row_offsets")):
        for change in (lambda array: array[None].copy(), lambda array: array.astype(np.float64)):
            arguments = make_calls()[op]
            arguments[name] = change(arguments[name])
            before = contents(arguments)
            with pytest.raises((ValueError, TypeError)) as raised:
                getattr(quire, op)(**arguments)
            error = raised.value
            assert Call(C, op, arguments).run() == STATUS[type(error)]
            found_op, argument, expected, actual = C.last_error()
            assert found_op == error.op == op
            assert argument in (error.argument, error.argument.removeprefix("index_"), f"{error.argument}.data")
            if arguments[name].dtype != np.float64:  # which the border of C refuses in other words
                assert (expected, actual) == (error.expected, error.actual)
                assert C.library.quire_last_error().decode() == f"{op}: '{argument}' must be {expected}, got {actual}"
            assert contents(arguments) == before


def test_masks_say_what_they_say_in_python():
    bits = np.tril(np.ones((TOKENS, 3), np.uint8))
    bounds = np.array([[0, 1], [1, 9], [3, 2], [-5, 2], [0, 0]], np.int32)[:TOKENS]
    masks = [
        quire.full(),
        quire.causal() & quire.sliding_window(2),
        (quire.chunked(3) | quire.sliding_window(1)) & quire.causal(),
        quire.tree(bits) & quire.sliding_window(4),
        quire.key_intervals(bounds[:, 0], bounds[:, 1]),
    ]
    seen = set()
    for mask in masks:
        check_bits("flash_attention", lambda: make_calls()["flash_attention"] | {"mask": mask})
        arguments = make_calls()["flash_attention"] | {"mask": mask}
        quire.flash_attention(**arguments)
        seen.add(arguments["out"].tobytes())
    assert len(seen) == len(masks)


def test_keys_of_the_callers_choice():
    def numbered(op):
        given = make_calls()[op] | {"key_lengths": np.array([2, 0], np.uint32)}
        for name in ("freqs_cis", "kv_norm_gamma", "kv"):
            given.pop(name, None)
        return given

    check_bits("flash_attention", lambda: numbered("flash_attention"))
    check_bits("mla_decode", lambda: numbered("mla_decode"))

    def ragged():
        rng, given = np.random.default_rng(6), make_calls()["flash_attention"]
        del given["cache"], given["layer"]
        k, v = (rng.standard_normal((7, 2, 8)).astype(np.float32) for _ in range(2))
        return given | {"k": k, "v": v, "key_offsets": np.array([0, 5, 7], np.uint32)}

    check_bits("flash_attention", ragged)


def test_caches_of_two_tensors():
    def given(op):
        arguments = make_calls()[op]
        one = arguments["cache"]
        keys, values = one.blocks[:, :1].copy(), one.blocks[:, 1:].copy()
        arguments["cache"] = quire.PagedKVCache(keys, one.cache_lengths, one.page_table, value_blocks=values)
        return arguments

    for op in ("flash_attention", "fused_qkv_matmul", "rms_norm_value", "copy_pages"):
        check_bits(op, lambda: given(op))


def weights(rng):
    """name → weight [48, 64], its scale, its Quant."""
    n, k, group = 48, 64, 32
    words = lambda *shape: rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)
    scales = lambda *shape: rng.uniform(0.01, 0.1, shape).astype(np.float32)
    perm = rng.permutation(k).astype(np.int32)
    bytes_ = lambda *shape: rng.integers(0, 256, shape, dtype=np.uint8)

    def blocks(size):
        codes = bytes_(n, k // 32, size)
        codes[..., :2] = rng.standard_normal((n, k // 32, 1)).astype(np.float16).view(np.uint8)
        return codes.reshape(n, -1)

    return {
        "bf16": (rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16), None, None),
        "fp8": (rng.standard_normal((n, k)).astype(ml_dtypes.float8_e4m3fn), scales(n, 1), None),
        "int4": (bytes_(n, k // 2), scales(n, k // group),
                 quire.Quant("int4", group, zeros=rng.integers(0, 16, (n, k // group), dtype=np.uint8), perm=perm)),
        "gptq": (words(k // 8, n), scales(k // group, n), quire.Quant("gptq", group, zeros=words(k // group, n // 8))),
        "awq": (words(k, n // 8), scales(k // group, n), quire.Quant("awq", group, zeros=words(k // group, n // 8))),
        "q8_0": (blocks(34), None, quire.Quant("q8_0")),
        "q5_0": (blocks(22), None, quire.Quant("q5_0")),
        "iq4_nl": (blocks(18), None, quire.Quant("iq4_nl")),
    }  # fmt: skip


def projection(weight, scale, quant, op="fused_qkv_matmul"):
    rng = np.random.default_rng(9)
    given = make_calls()[op] | {"x": rng.standard_normal((TOKENS, 64)).astype(np.float32), "weight": weight}
    if op == "linear":
        given |= {"bias": rng.standard_normal(48).astype(np.float32), "out": np.zeros((TOKENS, 48), np.float32)}
    return given | {name: part for name, part in (("weight_scale", scale), ("quant", quant)) if part is not None}


@pytest.mark.parametrize("op", ["fused_qkv_matmul", "linear"])
@pytest.mark.parametrize("name", weights(np.random.default_rng(3)))
def test_weights_of_all_kinds(name, op):
    weight = weights(np.random.default_rng(3))[name]
    if name == "fp8":  # with x of the same kind
        x = {"x": np.ones((TOKENS, 64), ml_dtypes.float8_e4m3fn), "input_scale": np.ones((1, 1), np.float32)}
        check_bits(op, lambda: projection(*weight, op) | x)
    else:
        check_bits(op, lambda: projection(*weight, op))


@pytest.mark.parametrize("name", ["bf16", "int4", "q8_0", "iq4_nl"])
def test_packed_weights(name):
    weight = weights(np.random.default_rng(3))[name]
    expected, arguments = run_python("fused_qkv_matmul", projection(*weight)), projection(*weight)
    call, size, packed = Call(C, "fused_qkv_matmul", arguments), ctypes.c_int64(), ctypes.c_void_p()
    assert C.library.quire_packed_bytes(call.args.weight, None, ctypes.byref(size)) == 0, C.last_error()
    room = np.zeros(size.value + 64, np.uint8)
    storage = room[-room.ctypes.data % 64 :][: size.value]
    view = call.tensor(storage)
    assert C.library.quire_pack_weight(call.args.weight, view, None, ctypes.byref(packed)) == 0, C.last_error()
    call.args.weight = call.pointer("quire_weight", {"packed": packed})
    try:
        assert call.run() == 0, C.last_error()
    finally:
        C.library.quire_packed_weight_free(packed)
    assert contents(arguments) == expected  # of the weight as it was


@pytest.mark.parametrize(
    "row_format",
    [
        quire.RowFormat.mla_fp8_block(256, 64),
        quire.RowFormat.mla_fp8_token(256, 64),
        quire.RowFormat.int4(320),
        quire.RowFormat.int4(320, 64, "f32", has_zeros=True),
    ],
    ids=str,
)
def test_described_rows(row_format):
    x = np.random.default_rng(4).standard_normal((TOKENS, 1, 320)).astype(np.float32)

    def arguments():
        plain = make_cache(NEW, CACHED, rng=np.random.default_rng(5), kv=1, heads=1, head_dim=row_format.row_bytes,
                           dtype=np.uint8)  # fmt: skip
        in_row = row_format.parts[0].scale_source == "in_row"
        scales = None if in_row else np.ones((*plain.blocks.shape[:5], 1), np.float32)
        cache = quire.PagedKVCache(plain.blocks, plain.cache_lengths, plain.page_table, scales, row_format=row_format)
        return {"x": x, "row_offsets": offsets(NEW), "cache": cache, "layer": 1}

    check_bits("store", arguments)


def test_keys_and_values_by_slots():
    rng = np.random.default_rng(4)
    k, v = (rng.standard_normal((TOKENS, 2, 8)).astype(np.float32) for _ in range(2))

    def arguments():
        blocks = make_cache(NEW, CACHED, rng=np.random.default_rng(5)).blocks
        return {"x": k, "value": v, "slots": np.array([9, -1, 2, 0]), "cache": quire.PagedKVCache(blocks), "layer": 1}

    check_bits("store", arguments)


def test_a_callers_threads_are_called_back():
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    count = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, task_type, ctypes.c_void_p)
    def run_tasks(_user, tasks, task, data):
        count.append(tasks)
        for index in range(tasks):
            task(data, index)

    op = "flash_attention"
    expected, arguments = run_python(op, make_calls()[op]), make_calls()[op]
    call = Call(C, op, arguments)
    context = call.make("quire_context", {"num_threads": 3, "parallel_for": ctypes.cast(run_tasks, ctypes.c_void_p)})
    assert call.run(context) == 0, C.last_error()
    assert count and contents(arguments) == expected


def test_an_error_belongs_to_its_thread():
    assert C.library.quire_rope(None, None) != 0
    texts = []
    thread = threading.Thread(target=lambda: texts.append(C.library.quire_last_error()))
    thread.start()
    thread.join()
    assert texts == [b""]
    assert C.library.quire_last_error() == b"rope: 'args' must be a struct, got NULL"


def test_absorbed_weights_are_views():
    proj = np.random.default_rng(6).standard_normal((2 * (4 + 6), 16)).astype(np.float32)
    call = Call(C, "row_offsets", make_calls()["row_offsets"])
    room = [(ctypes.c_int64 * 3)() for _ in range(4)]
    w_uk, w_uv = DLTensor(shape=room[0], strides=room[1]), DLTensor(shape=room[2], strides=room[3])
    made = call.make(
        "quire_absorb_kv_b_proj_args",
        {"kv_b_proj": proj, "heads": 2, "nope": 4, "w_uk": ctypes.pointer(w_uk), "w_uv": ctypes.pointer(w_uv)},
    )
    assert C.library.quire_absorb_kv_b_proj(made) == 0, C.last_error()
    for view, expected in zip((w_uk, w_uv), quire.absorb_kv_b_proj(proj, heads=2, nope=4)):
        assert view.data == expected.ctypes.data
        assert view.shape[:3] == list(expected.shape)
        assert view.strides[:3] == [stride // 4 for stride in expected.strides]


def test_dltensor_is_the_one_of_dlpack(tmp_path: Path):
    torch = pytest.importorskip("torch")
    header = Path(torch.__file__).parent / "include/ATen/dlpack.h"
    compiler = shutil.which("cc")
    if compiler is None or not header.exists():
        pytest.skip("needs a C compiler and a dlpack.h")
    names = {"kDLCPU": "QUIRE_DL_CPU", "kDLCUDA": "QUIRE_DL_CUDA", "kDLCUDAHost": "QUIRE_DL_CUDA_HOST",
             "kDLCUDAManaged": "QUIRE_DL_CUDA_MANAGED", "kDLInt": "QUIRE_DL_INT", "kDLUInt": "QUIRE_DL_UINT",
             "kDLFloat": "QUIRE_DL_FLOAT", "kDLBfloat": "QUIRE_DL_BFLOAT", "kDLBool": "QUIRE_DL_BOOL",
             "kDLFloat8_e4m3fn": "QUIRE_DL_FP8_E4M3", "kDLFloat8_e5m2": "QUIRE_DL_FP8_E5M2"}  # fmt: skip
    lines = [f"_Static_assert((int){theirs} == (int){ours}, \"{theirs}\");" for theirs, ours in names.items()]
    for name, _ in DLTensor._fields_:
        offset = getattr(DLTensor, name).offset
        lines.append(f'_Static_assert(offsetof(DLTensor, {name}) == {offset}, "{name}");')
    lines.append(f'_Static_assert(sizeof(DLTensor) == {ctypes.sizeof(DLTensor)}, "size");')
    checks = "\n".join(lines)
    for first in (f'#include "{header}"\n', ""):  # theirs before ours, and ours alone
        source = tmp_path / "dlpack.c"
        body = checks if first else "\n".join(line for line in lines if "kDL" not in line)
        source.write_text(f'#include <stddef.h>\n{first}#include "quire/c/quire.h"\n{body}\n')
        command = [compiler, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", str(ROOT / "include"), str(source)]
        subprocess.run(command, check=True)


def test_the_snippets_of_the_page(tmp_path: Path):
    page = (ROOT / "docs/c_interface.md").read_text()
    (c_block,) = re.findall(r"^```c\n(.*?)^```$", page, re.M | re.S)
    example = [line.strip() for line in (ROOT / "examples/c/paged_attention.c").read_text().splitlines()]
    for line in c_block.splitlines():
        assert any(shown.startswith(line.strip()) for shown in example), line
    (python_block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    names: dict = {}
    exec(compile(python_block.replace('"libquire.so"', f'"{library_path()}"'), "c_interface.md", "exec"), names)
    assert list(names["keys"]) == [0, 7, 15]
