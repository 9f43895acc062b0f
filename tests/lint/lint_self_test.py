# SPDX-License-Identifier: Apache-2.0
"""Every check finds the fault it was written for in a deliberately bad tree, and none in a good one."""

import shutil
import tempfile
import unittest
from pathlib import Path

import cuda_house
import file_names
import layering
import machine_paths
import operand_table
import page_files
import page_tables
import public_headers
import sizes
import spdx
import tile_builders
from cpp_functions import find_functions

SPDX_CPP = "// SPDX-License-Identifier: Apache-2.0\n"
SPDX_HASH = "# SPDX-License-Identifier: Apache-2.0\n"


class LintTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def findings(self, module) -> list[str]:
        return list(module.check(self.root))

    def assert_finds(self, module, *parts: str) -> None:
        findings = self.findings(module)
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])


class LayeringTest(LintTest):
    def setUp(self) -> None:
        super().setUp()
        for name in ("include/quire/dtype.h", "include/quire/ops/rope.h", "src/core/names.h"):
            self.write(name, SPDX_CPP)
        for name in ("src/reference/masks.h", "src/cuda/kernels.h", "src/cuda/common/mma/mma.h"):
            self.write(name, SPDX_CPP)

    def test_allowed_directions(self) -> None:
        self.write("src/core/names.cpp", '#include "core/names.h"\n#include <vector>\n#include "names.h"\n')
        self.write("src/reference/rope.cpp", '#include "core/names.h"\n#include "quire/ops/rope.h"\n')
        self.write("src/ops/rope/run.cpp", '#include "reference/masks.h"\n#include <fmt/core.h>\n')
        self.write("src/ops/rope/gpu.cpp", '#include "cuda/kernels.h"\n')
        self.assertEqual(self.findings(layering), [])

    def test_core_must_not_include_reference(self) -> None:
        self.write("src/core/bad.cpp", '#include <vector>\n#include "reference/masks.h"\n')
        self.assert_finds(layering, "src/core/bad.cpp:2", "src/reference/masks.h")

    def test_relative_path_does_not_hide_the_direction(self) -> None:
        self.write("src/core/bad.cpp", '#include "../reference/masks.h"\n')
        self.assert_finds(layering, "src/core must not include")

    def test_core_must_not_include_an_op(self) -> None:
        self.write("src/core/bad.cpp", '#include "quire/ops/rope.h"\n')
        self.assert_finds(layering, "include/quire/ops/rope.h")

    def test_public_header_must_not_include_private_one(self) -> None:
        self.write("include/quire/bad.h", '#include "core/names.h"\n')
        self.assert_finds(layering, "include/quire must not include src/core/names.h")

    def test_public_header_must_not_include_fmt_or_cuda(self) -> None:
        self.write("include/quire/bad.h", "#include <fmt/core.h>\n#include <cuda_runtime.h>\n")
        self.assertEqual(len(self.findings(layering)), 2)

    def test_the_c_interface_knows_neither_cpp_headers_nor_python(self) -> None:
        self.write("include/quire/c/mask.h", SPDX_CPP)
        self.write("bindings/c/good.cpp", '#include "quire/c/mask.h"\n#include "quire/ops/rope.h"\n')
        self.assertEqual(self.findings(layering), [])
        self.write("include/quire/c/bad.h", '#include "quire/dtype.h"\n')
        self.write("bindings/c/bad.cpp", "#include <nanobind/nanobind.h>\n")
        self.write("examples/c/bad.c", '#include "quire/dtype.h"\n')
        self.assertEqual(len(self.findings(layering)), 3)

    def test_torch_is_allowed_nowhere(self) -> None:
        self.write("bindings/python/bad.cpp", "#include <torch/extension.h>\n")
        self.assert_finds(layering, "torch/extension.h")

    def test_ops_see_only_the_kernels_of_cuda(self) -> None:
        self.write("src/ops/bad.cpp", '#include "cuda/common/mma/mma.h"\n')
        self.assert_finds(layering, "only kernels.h")

    def test_a_backend_must_not_call_an_op(self) -> None:
        self.write("src/cuda/bad.cpp", "const auto problem = validate(args);\n")
        self.assert_finds(layering, "src/cuda/bad.cpp:1", "must not call validate()")

    def test_unknown_header(self) -> None:
        self.write("src/core/bad.cpp", '#include "core/nowhere.h"\n')
        self.assert_finds(layering, "core/nowhere.h")


class CudaHouseTest(LintTest):
    def test_an_op_may_include_itself_common_and_its_general_kernels(self) -> None:
        self.write("src/cuda/sm90/rope/a.cuh", '#include "cuda/sm90/rope/b.cuh"\n#include "cuda/common/rows/vec8.cuh"\n')
        self.write("src/cuda/sm90/rope/b.cuh", '#include "cuda/any/rope/params.h"\n')
        self.assertEqual(self.findings(cuda_house), [])

    def test_an_op_must_not_include_another(self) -> None:
        self.write("src/cuda/sm90/rope/a.cuh", '#include "cuda/sm90/store/b.cuh"\n')
        self.assert_finds(cuda_house, "sm90/rope must not include sm90/store/b.cuh")

    def test_an_op_that_runs_another_sees_its_launch_alone(self) -> None:
        self.write("src/cuda/any/mla_prefill/a.cpp", '#include "cuda/any/mla_decode/launch.h"\n')
        self.assertEqual(self.findings(cuda_house), [])
        self.write("src/cuda/any/mla_prefill/a.cpp", '#include "cuda/any/mla_decode/params.h"\n')
        self.assert_finds(cuda_house, "may include only launch.h of any/mla_decode")

    def test_the_companions_have_one_header(self) -> None:
        self.write("src/cuda/any/companions.h", "namespace quire::cuda::any {\n}\n")
        for user in ("any/rope", "sm90/mla_prefill"):
            self.write(f"src/cuda/{user}/a.cpp", '#include "cuda/any/companions.h"\n')
        self.assertEqual(self.findings(cuda_house), [])
        self.write("src/cuda/any/mla_decode/a.cpp", '#include "cuda/any/companions.h"\n')
        self.assert_finds(cuda_house, "any/mla_decode must not include any/companions.h")

    def test_folders_of_common_do_not_include_in_a_ring(self) -> None:
        self.write("src/cuda/common/mma/a.cuh", '#include "cuda/common/rows/b.cuh"\n')
        self.write("src/cuda/common/rows/b.cuh", '#include "cuda/common/mma/a.cuh"\n')
        self.assert_finds(cuda_house, "common/ has a ring")

    def test_a_type_name_stands_once(self) -> None:
        self.write("src/cuda/any/rope/a.cuh", "struct RowPlace {\n};\n")
        self.write("src/cuda/sm90/store/b.cuh", "template <int kRows> class RowPlace {\n};\n")
        self.assert_finds(cuda_house, "type RowPlace is defined in any/rope/a.cuh, sm90/store/b.cuh")

    def test_a_namespace_is_a_folder(self) -> None:
        self.write("src/cuda/any/rope/a.cuh", "namespace quire::cuda::sm90::rope {\n}\n")
        self.assert_finds(cuda_house, "not quire::cuda::any::rope")

    def test_any_runs_on_every_gpu(self) -> None:
        self.write("src/cuda/any/rope/a.cuh", 'asm volatile("wgmma.fence.sync.aligned;");\n')
        self.assert_finds(cuda_house, "wgmma is not for every GPU")

    def test_what_any_includes_runs_on_every_gpu(self) -> None:
        self.write("src/cuda/any/rope/a.cu", '#include "cuda/common/thread/b.cuh"\n')
        self.write("src/cuda/common/thread/b.cuh", "cudaTriggerProgrammaticLaunchCompletion();\n")
        self.assert_finds(cuda_house, "common/thread/b.cuh", "is not for every GPU (included by any/rope/a.cu)")

    def test_any_may_have_more_on_sm90_behind_a_guard(self) -> None:
        guarded = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n  cudaTriggerProgrammaticLaunchCompletion();\n#endif\n"
        self.write("src/cuda/any/rope/a.cu", guarded)
        self.assertEqual(self.findings(cuda_house), [])
        self.write("src/cuda/any/rope/a.cu", guarded + "cudaGridDependencySynchronize();\n")
        self.assert_finds(cuda_house, "cudaGridDependencySynchronize is not for every GPU")

    def test_any_hands_work_to_sm90_from_the_host(self) -> None:
        self.write("src/cuda/sm90/rope/launch.h", SPDX_CPP)
        self.write("src/cuda/any/rope/a.cpp", '#include "cuda/sm90/rope/launch.h"\n')
        self.assertEqual(self.findings(cuda_house), [])
        self.write("src/cuda/any/rope/b.cu", '#include "cuda/sm90/rope/launch.h"\n')
        self.assert_finds(cuda_house, "any/rope may include only launch.h of sm90/rope, in a .cpp")


class TileBuildersTest(LintTest):
    def test_a_copy_of_what_a_builder_made_is_allowed(self) -> None:
        self.write("include/quire/tile_descriptor.h", "struct QUIRE_API TileDescriptor {\n  int rank = 0;\n};\n")
        self.write("src/core/tile_builders.cpp", "TileDescriptor make() {\n  TileDescriptor tile;\n  tile.box[0] = 1;\n}\n")
        self.write("src/cuda/common/runtime/tensor_map.cpp", "void encode() { cuTensorMapEncodeTiled(); }\n")
        self.write(
            "src/cuda/sm90/rope/a.cpp",
            "struct TileDescriptor;\nTileDescriptor page_tile();\n"
            "TensorMap map() {\n  TileRequest request{.box_rows = 8};\n  request.box_columns = 4;\n"
            "  const TileDescriptor tile = make_tile(rows(), request);  // not TileDescriptor tile;\n"
            "  return tile.box == tile.box ? encode_tensor_map(tile) : TensorMap{};\n}\n",
        )
        self.assertEqual(self.findings(tile_builders), [])

    def test_an_empty_descriptor_is_one_to_be_filled_by_hand(self) -> None:
        self.write("src/cuda/sm90/rope/a.cpp", "void f() {\n  TileDescriptor tile;\n}\n")
        self.assert_finds(tile_builders, "src/cuda/sm90/rope/a.cpp:2", "'TileDescriptor tile;'")

    def test_braces_and_temporaries_are_found(self) -> None:
        for text in ("TileDescriptor tile{.rank = 2};", "TileDescriptor tile = {};", "f(TileDescriptor{});", "f(TileDescriptor());"):
            self.write("tools/device/cuda/a.cpp", text + "\n")
            self.assert_finds(tile_builders, "tools/device/cuda/a.cpp:1")

    def test_what_a_builder_made_is_not_changed(self) -> None:
        for text in ("tile.box[1] = 16;", "tile.strides_bytes = {512};", "tile.dims[0] *= 2;"):
            self.write("src/cuda/sm90/rope/a.cpp", "auto tile = make_tile(rows, {});\n" + text + "\n")
            self.assert_finds(tile_builders, "src/cuda/sm90/rope/a.cpp:2", "ask the builder")

    def test_one_place_encodes(self) -> None:
        self.write("src/cuda/any/rope/a.cpp", "const auto status = cuTensorMapEncodeTiled(&map);\n")
        self.assert_finds(tile_builders, "encoded by src/cuda/common/runtime/tensor_map.cpp")
class PageTablesTest(LintTest):
    def assert_reads(self, text: str, found: str) -> None:
        self.write("src/cpu/bad.cpp", text)
        self.assert_finds(page_tables, "src/cpu/bad.cpp", f"'{found}'", "include/quire/page_cursor.h")

    def assert_passes(self, text: str) -> None:
        self.write("src/cpu/good.cpp", text)
        self.assertEqual(self.findings(page_tables), [])

    def test_the_cursor_reads(self) -> None:
        self.write("include/quire/page_cursor.h", "return page_table[sequence * row_stride + column];\n")
        self.assertEqual(self.findings(page_tables), [])

    def test_tables_are_passed_on(self) -> None:
        self.assert_passes(
            "view.page_table = cache.page_table.as<std::uint32_t>();\n"
            "view.page_table_stride = cache.page_table.strides[0];\n"
            "const std::int64_t columns = cache.page_table.shape[1];\n"
            "for (int i = 0; i < columns; ++i) sums[i] = columns + i;\n"
            "const PagedKVCache cache = pool.view(batch.page_table, lengths);\n"
            "const auto count = cache.batch() + 1;\n"
            'check.fail(name + ".page_table[0]", "…");  // page_table[sequence]\n'
            "table[code] = decode(code);\n"
        )

    def test_who_makes_a_table_writes_it(self) -> None:
        self.assert_passes("page_table.as<std::uint32_t>()[b * columns + column] = page;\n")

    def test_an_entry_of_a_pointer(self) -> None:
        self.assert_reads("const auto page = scales.page_table[sequence * stride + column];\n", "page_table[")

    def test_a_comparison_is_no_write(self) -> None:
        self.assert_reads("return view.page_table[column] == page;\n", "page_table[")

    def test_a_row_of_a_table(self) -> None:
        self.assert_reads("load(view.page_table + sequence * stride);\n", "page_table +")

    def test_an_element_of_a_tensor(self) -> None:
        self.assert_reads("page = cache.page_table.as<const std::uint32_t>()[at];\n", "page_table.as<const std::uint32_t>()[")
        self.assert_reads("page = cache.page_table.load({sequence, column});\n", "page_table.load(")

    def test_a_name_that_was_set_from_a_table(self) -> None:
        self.assert_reads("const auto* pages = cache.page_table.as<const std::uint32_t>();\nuse(pages[3]);\n", "pages[")
        self.assert_reads("const auto* ids = static_cast<const std::uint32_t*>(page_table.data);\nuse(ids[3]);\n", "ids[")
        self.assert_reads(
            "const TensorView& table = own ? *scales_page_table : page_table;\nuse(table.as<std::uint32_t>()[0]);\n",
            "table.as<std::uint32_t>()[",
        )

    def test_a_member_called_table(self) -> None:
        self.assert_reads("const auto page = params.table[column];\n", ".table[")

    def test_every_folder_of_the_host(self) -> None:
        for folder in ("include/quire", "src/core", "src/reference", "src/ops", "tools/demo"):
            self.write(f"{folder}/bad.h", "int page = page_table[0];\n")
        self.assertEqual(len(self.findings(page_tables)), 5)


class OperandTableTest(LintTest):
    def setUp(self) -> None:
        super().setUp()
        self.write("include/quire/paged_kv_operand.h", SPDX_CPP + "class PagedKvOperand {\n};\n")
        self.write("src/cpu/rope/kernels.h", "struct RopeKernels {};\n")
        self.write("src/cpu/kernels/rows_rope.cpp", '#include "cpu/rope/kernels.h"\n')
        self.write(
            "src/cpu/rope/rope.cpp",
            '#include "cpu/rope/kernels.h"\n#include "quire/paged_kv_operand.h"\n'
            "const PagedKvOperand keys(args.cache.key(layer));\n",
        )
        self.write("docs/architecture.md", f"# A\n{operand_table.BEGIN}\n{operand_table.END}\n# B\n")

    def test_a_written_table_is_current(self) -> None:
        operand_table.write(self.root)
        self.assertEqual(self.findings(operand_table), [])
        text = (self.root / "docs/architecture.md").read_text()
        self.assertIn("| `cpu/rope` | rows_rope | `PagedKvOperand` |\n", text)
        self.assertTrue(text.startswith("# A\n") and text.endswith("\n# B\n"), text)

    def test_an_old_table(self) -> None:
        operand_table.write(self.root)
        self.write("src/cpu/store/store.cpp", '#include "quire/paged_kv_operand.h"\nPagedKvOperand rows;\n')
        self.assert_finds(operand_table, "docs/architecture.md", "--write")

    def test_a_page_without_the_table(self) -> None:
        self.write("docs/architecture.md", "# A\n")
        self.assert_finds(operand_table, "no place")

    def test_a_driver_without_operand(self) -> None:
        self.write("src/cpu/store/store.cpp", "const KvLayerView view = args.cache.value(layer);\n")
        operand_table.write(self.root)
        self.assert_finds(operand_table, "src/cpu/store/store.cpp", "without an operand")

    def test_operands_behind_a_header_of_another_folder(self) -> None:
        self.write("src/cpu/mla_decode/mla_decode.cpp", '#include "cpu/rope/rope.h"\n')
        self.write("src/cpu/rope/rope.h", "void rope();\n")
        rows = dict((name, operands) for name, _, operands in operand_table.cpu_rows(operand_table.Sources(self.root)))
        self.assertEqual(rows["`cpu/mla_decode`"], ["PagedKvOperand"])

    def test_the_device_states_its_operands_once_it_has_some(self) -> None:
        self.write("src/cuda/sm90/rope/kernel.cuh", '#include "cuda/sm90/rope/load.cuh"\n__global__ void rotate() {}\n')
        self.write("src/cuda/sm90/rope/load.cuh", '#include "cuda/common/paging/paged_rows.cuh"\nPagedOperand rows;\n')
        sources = operand_table.Sources(self.root)
        self.assertEqual(list(operand_table.cuda_rows(sources)), [])
        self.write("src/cuda/common/paging/paged_rows.cuh", "struct PagedOperand {\n};\nstruct PagedOther {\n};\n")
        sources = operand_table.Sources(self.root)
        self.assertEqual(list(operand_table.cuda_rows(sources)), [("`cuda/sm90/rope`", ["kernel"], ["PagedOperand"])])


def function_text(num_body_lines: int) -> str:
    body = "".join(f"  values[{i}] = {i};\n" for i in range(num_body_lines))
    return f"void fill(int* values,\n          int unused) {{\n{body}}}\n"


class SizesTest(LintTest):
    def test_limits_are_inclusive(self) -> None:
        self.write("src/core/a.cpp", "\n" * 400)
        self.write("include/quire/a.h", "\n" * 150)
        self.write("src/core/b.cpp", function_text(57))
        self.assertEqual(self.findings(sizes), [])

    def test_long_file(self) -> None:
        self.write("src/core/a.cpp", "\n" * 401)
        self.assert_finds(sizes, "401 lines", "400")

    def test_long_public_header(self) -> None:
        self.write("include/quire/a.h", "\n" * 151)
        self.assert_finds(sizes, "151 lines", "150")

    def test_long_function(self) -> None:
        self.write("src/core/a.cpp", "namespace quire {\n" + function_text(58) + "}\n")
        self.assert_finds(sizes, "src/core/a.cpp:2", "fill has 61 lines")

    def test_long_member_template_and_constructor(self) -> None:
        body = "  x();\n" * 60
        self.write(
            "src/core/a.h",
            f"struct S {{\n  template <typename T>\n  T get() const noexcept {{\n{body}  }}\n"
            f"  S(int a) : a_(a) {{\n{body}  }}\n}};\n",
        )
        self.assertEqual(len(self.findings(sizes)), 2)

    def test_long_namespace_type_and_table_are_no_functions(self) -> None:
        rows = "  {1, f(2)},\n" * 70
        self.write("src/core/a.cpp", f"namespace a {{\nstruct B {{\n{'  int c;' * 70}\n}};\n}}\nT t[] = {{\n{rows}}};\n")
        self.write("src/core/b.cpp", f"enum class E {{\n{'  a, // f()' * 3}\n{chr(10) * 70}}};\n")
        self.assertEqual(self.findings(sizes), [])

    def test_braces_in_text_do_not_count(self) -> None:
        text = "int f() {\n  // }\n  char c = '{';\n  int n = 1'000;\n  return g(\"}\", R\"(})\");\n}\nint h() {\n}\n"
        found = [(f.name, f.first_line, f.num_lines) for f in find_functions(text)]
        self.assertEqual(found, [("f", 1, 6), ("h", 7, 2)])

    def test_lambda_counts_towards_its_function(self) -> None:
        text = "void f() {\n  run([&](int i) {\n    g(i);\n  });\n  if (a) {\n  }\n}\n"
        self.assertEqual([(f.name, f.num_lines) for f in find_functions(text)], [("f", 7)])


class SpdxTest(LintTest):
    def test_good_files(self) -> None:
        self.write("a.cpp", SPDX_CPP)
        self.write("b.sh", "#!/bin/sh\n" + SPDX_HASH)
        self.write("README.md", "no licence line needed\n")
        self.assertEqual(self.findings(spdx), [])

    def test_missing_in_each_kind(self) -> None:
        names = ["a.h", "a.cpp", "a.cu", "a.cuh", "a.py", "a.sh", "a.cmake", "CMakeLists.txt", "Makefile"]
        for name in names:
            self.write(name, "text\n")
        self.assertEqual(len(self.findings(spdx)), len(names))

    def test_not_in_the_first_line(self) -> None:
        self.write("a.py", "import os\n" + SPDX_HASH)
        self.assert_finds(spdx, "a.py:1")


class FileNamesTest(LintTest):
    def test_names(self) -> None:
        self.write("src/core/commonality.h", "")
        self.assertEqual(self.findings(file_names), [])
        self.write("src/core/string_utils.h", "")
        self.assert_finds(file_names, "string_utils.h", "utils")

    def test_folder(self) -> None:
        self.write("src/common/dtype.h", "")
        self.assert_finds(file_names, "src/common/dtype.h")


class MachinePathsTest(LintTest):
    def test_relative_and_composed_paths_are_fine(self) -> None:
        self.write("a.sh", "cat $dir/work ${dir}/root ./work/a build/root /usr/bin/env /workspace\n")
        self.assertEqual(self.findings(machine_paths), [])

    def test_absolute_paths(self) -> None:
        for folder in ("root", "work", "home/ada"):
            self.write("a.md", f"see\n`/{folder}/x`\n")
            self.assert_finds(machine_paths, "a.md:2", f"/{folder}")


class PageFilesTest(LintTest):
    def test_files_and_folders_that_are_there(self) -> None:
        self.write("src/cuda/common/config.h", "")
        self.write("docs/a.md", "`src/cuda/common/config.h`, `common/config.h`, `config.h`, `common/`, `quire.h`s `a + b`\n")
        self.write("docs/notebook/a.md", "`gone.h`\n")
        self.write("src/quire.h", "")
        self.assertEqual(self.findings(page_files), [])

    def test_gone(self) -> None:
        self.write("src/config.h", "")
        for name in ("gone.h", "other/config.h", "nfig.h", "gone/"):
            self.write("docs/a.md", f"as\n`{name}` says\n")
            self.assert_finds(page_files, "docs/a.md:2", f"'{name}'")


class PublicHeadersTest(LintTest):
    def setUp(self) -> None:
        super().setUp()
        self.write("include/quire/quire.h", SPDX_CPP + '#include "quire/dtype.h"\n')
        self.write("include/quire/dtype.h", SPDX_CPP + "enum class DType { f32 };\n")

    def test_every_header_is_included(self) -> None:
        self.assertEqual(self.findings(public_headers), [])

    def test_forgotten_header(self) -> None:
        self.write("include/quire/ops/rope.h", SPDX_CPP)
        self.assert_finds(public_headers, "quire/ops/rope.h is not included")

    def test_header_that_needs_another_before_it(self) -> None:
        compiler = shutil.which("c++")
        if compiler is None:
            self.skipTest("no compiler")
        self.assertEqual(list(public_headers.check_alone(self.root, compiler)), [])
        self.write("include/quire/mask.h", SPDX_CPP + "struct Mask { DType dtype; };\n")
        findings = list(public_headers.check_alone(self.root, compiler))
        self.assertEqual(len(findings), 1, findings)
        self.assertIn("mask.h: does not compile alone", findings[0])

    def test_headers_of_the_c_interface_have_their_own_umbrella(self) -> None:
        self.write("include/quire/c/quire.h", SPDX_CPP + '#include "quire/c/mask.h"\n')
        self.write("include/quire/c/mask.h", SPDX_CPP + "typedef struct quire_mask { int kind; } quire_mask;\n")
        self.assertEqual(self.findings(public_headers), [])
        self.write("include/quire/c/cache.h", SPDX_CPP)
        self.assert_finds(public_headers, "include/quire/c/quire.h: quire/c/cache.h is not included")

    def test_a_header_of_the_c_interface_that_is_no_c(self) -> None:
        compiler = shutil.which("c++")
        if compiler is None:
            self.skipTest("no compiler")
        self.write("include/quire/c/mask.h", SPDX_CPP + "struct Mask { int kind = 0; };\n")
        findings = list(public_headers.check_alone(self.root, compiler))
        self.assertEqual(len(findings), 1, findings)
        self.assertIn("c/mask.h: does not compile alone as c\n", findings[0])


if __name__ == "__main__":
    unittest.main()
