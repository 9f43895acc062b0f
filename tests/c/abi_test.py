# SPDX-License-Identifier: Apache-2.0
"""Each check of the C interface finds the fault that it was written for, in a small bad header."""

import tempfile
import unittest
from pathlib import Path

import abi
import fields
from c_header import Interface, read_interface

HEADER = """// struct quire_in_a_comment { int a; };
enum { QUIRE_C_ABI_VERSION = 1, QUIRE_SIDE_KEY = 0 };
typedef struct quire_rope_args {
  size_t struct_size;
  const DLTensor* q;   // [tokens]
  int32_t side;
} quire_rope_args;
typedef struct quire_context {
  size_t struct_size;
  void (*parallel_for)(void* user, int64_t tasks,
                       quire_task task);
} quire_context;
QUIRE_C_API quire_status quire_rope(const quire_rope_args* args,
                                    quire_prepared** prepared);
QUIRE_C_API int32_t quire_c_abi_version(void);
"""


class HeaderCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.include = Path(folder.name)
        (self.include / "quire/c").mkdir(parents=True)
        (self.include / "quire/ops").mkdir()
        (self.include / "quire/c/quire.h").write_text(HEADER)
        self.interface = read_interface(self.include)


class AbiTest(HeaderCase):
    def test_what_a_header_declares(self) -> None:
        self.assertEqual(
            self.interface,
            Interface(
                structs={
                    "quire_rope_args": [("size_t", "struct_size"), ("const DLTensor*", "q"), ("int32_t", "side")],
                    "quire_context": [
                        ("size_t", "struct_size"),
                        ("void (*)(void* user, int64_t tasks, quire_task task)", "parallel_for"),
                    ],
                },
                enumerators=["QUIRE_C_ABI_VERSION", "QUIRE_SIDE_KEY"],
                functions={
                    "quire_rope": "quire_status quire_rope(const quire_rope_args* args, quire_prepared** prepared)",
                    "quire_c_abi_version": "int32_t quire_c_abi_version(void)",
                },
            ),
        )

    def test_bytes_of_no_field_are_found(self) -> None:
        values = {"sizeof(quire_rope_args)": 24, "sizeof(quire_context)": 16}
        for struct, names in {"quire_rope_args": ("q", "side"), "quire_context": ("parallel_for",)}.items():
            for position, name in enumerate(("struct_size", *names)):
                values[f"offsetof({struct}, {name})"] = 8 * position
                values[f"sizeof((({struct}*)0)->{name})"] = 4 if name == "side" else 8
        self.assertEqual(abi.gaps(self.interface, values), ["quire_rope_args: the last bytes belong to no field"])
        values["offsetof(quire_rope_args, side)"] = 20
        self.assertEqual(abi.gaps(self.interface, values), ["quire_rope_args: 4 bytes before 'side' belong to no field"])

    def test_symbols_and_functions_are_the_same(self) -> None:
        listing = "1 T quire_rope@@QUIRE_C_1\n2 T quire_more@@QUIRE_C_1\n3 T _ZN5quire4ropeEv@@QUIRE_0.1\n"
        self.assertEqual(
            abi.symbol_differences(listing, self.interface, 1),
            ["quire_c_abi_version@@QUIRE_C_1: declared and not exported",
             "quire_more@@QUIRE_C_1: exported and not declared"],
        )  # fmt: skip
        self.assertEqual(len(abi.symbol_differences(listing, self.interface, 2)), 4)

    def test_a_list_may_only_grow(self) -> None:
        old = ["version 1", "enumerator A 1", "size quire_x 16", "field quire_x 8 q: int32_t",
               "field quire_x 12 reserved: int32_t"]  # fmt: skip
        grown = ["version 1", "enumerator A 1", "enumerator B 2", "size quire_x 24", "field quire_x 8 q: int32_t",
                 "field quire_x 12 flag: int32_t", "field quire_x 16 more: double"]  # fmt: skip
        self.assertEqual(abi.broken_promises(old, grown), [])
        for line in old[1:]:
            self.assertEqual(abi.broken_promises(old, [other for other in old if other != line]), [line])
        self.assertEqual(abi.broken_promises(old, ["version 2"]), [])
        self.assertEqual(len(abi.compare(old, grown)), 6)


class FieldsTest(HeaderCase):
    def write(self, text: str) -> None:
        (self.include / "quire/ops/rope.h").write_text(text)

    def test_members_of_a_struct(self) -> None:
        self.write("""struct RopeArgs {
          TensorView q;  // TensorView in_a_comment;
          std::optional<TensorView> gamma{};
          std::vector<std::int64_t> sections{};
          static constexpr int kMost = 4;
          struct Inner { int inside; };
          int width() const { int local = 1; return local; }
          bool rotate = true;
          bool operator==(const RopeArgs&) const = default;
        };""")
        self.assertEqual(fields.cpp_structs(self.include), {"RopeArgs": ["q", "gamma", "sections", "rotate"]})

    def test_a_field_that_c_lacks_or_has_alone(self) -> None:
        structs = {"RopeArgs": ["q", "freqs_cis"]}
        found = fields.struct_differences(structs, self.interface)
        self.assertIn("quire_rope_args: lacks 'freqs_cis' of RopeArgs", found)
        self.assertIn("quire_rope_args: 'side' is not in RopeArgs", found)
        self.assertNotIn("quire_rope_args: lacks 'q' of RopeArgs", found)

    def test_an_op_without_a_struct_function_or_number(self) -> None:
        self.assertIn("NewArgs: no struct of the C interface", fields.struct_differences({"NewArgs": []}, self.interface))
        found = fields.op_differences(self.interface)
        self.assertIn("rope: no QUIRE_OP_ number", found)
        self.assertIn("rms_norm_key: no function or no struct", found)

    def test_an_enumerator_that_c_lacks(self) -> None:
        found = fields.enum_differences({"KvSide": ["key", "value"]}, self.interface)
        self.assertIn("QUIRE_SIDE_VALUE: missing, KvSide has it", found)
        self.assertNotIn("QUIRE_SIDE_KEY: missing, KvSide has it", found)


if __name__ == "__main__":
    unittest.main()
