# SPDX-License-Identifier: Apache-2.0
"""The reader of headers finds what a header declares and another file defines, and exported_symbols what is amiss."""

import tempfile
import unittest
from pathlib import Path

from exported_symbols import differences, exported_names, function_of
from public_functions import public_functions

HEADER = """// void in_a_comment();
#define DECLARE(x) void x()
namespace quire {
enum class Kind { a, b };
struct QUIRE_API Marked {
  int value = f(1);
  static Marked make(int a = g(2),
                     int b = 0);
  int inside() const { return value; }
  bool operator==(const Marked&) const = default;
 private:
  void far() const;
};
class Unmarked : public Marked {
 public:
  Unmarked();
};
template <typename T> void generic(T value);
inline void here() {}
using Task = void (*)(int);
inline constexpr int kSize = size(3);
[[noreturn]] QUIRE_API void fail(const char* text = "a;b{");
void forgotten(int a);
}
"""


class PublicFunctionsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.include = Path(folder.name)
        (self.include / "a.h").write_text(HEADER)
        (self.include / "c").mkdir()
        (self.include / "c" / "b.h").write_text("QUIRE_C_API int quire_of_c(void);\n")

    def test_what_is_declared_and_marked(self) -> None:
        found = [(f.name, f.line, f.exported) for f in public_functions(self.include)]
        self.assertEqual(
            found,
            [("Marked::make", 7, True), ("Marked::far", 12, True), ("Unmarked::Unmarked", 16, False),
             ("fail", 22, True), ("forgotten", 23, False)],
        )  # fmt: skip

    def test_missing_unmarked_and_leaked_symbols_are_found(self) -> None:
        listing = (
            "0000000000000000 A QUIRE_0.1\n"
            "0000000000001000 T quire::Marked::make(int, int)@@QUIRE_0.1\n"
            "0000000000001010 T quire::Marked::far() const@@QUIRE_0.1\n"
            "0000000000001020 T quire::Unmarked::Unmarked()@@QUIRE_0.1\n"
            "0000000000001020 T quire::Unmarked::Unmarked()@@QUIRE_0.1\n"
            "0000000000001030 T quire::fail(char const*)@@QUIRE_0.1\n"
            "0000000000001040 W fmt::v9::vformat(int)\n"
            "0000000000001050 V typeinfo for quire::Error@@QUIRE_0.1\n"
            "0000000000001060 T quire::cpu::avx2::kernel(int)@@QUIRE_0.1\n"
            "0000000000001070 T quire_rope@@QUIRE_C_1\n"
            "0000000000001080 T quire_leaked@@QUIRE_0.1\n"
        )
        found = differences(exported_names(listing), self.include)
        self.assertEqual(len(found), 6, found)
        self.assertIn("forgotten: declared 1 times, exported 0 times", found)
        self.assertTrue(any(line.startswith("fmt::v9::vformat(int): declared 0") for line in found))
        self.assertTrue(any("quire::cpu::avx2::kernel" in line for line in found))
        self.assertTrue(any(line.startswith("quire_leaked: declared 0") for line in found))

    def test_names_of_symbols(self) -> None:
        self.assertEqual(function_of("quire::name(quire::DType)"), "name")
        self.assertEqual(function_of("quire::describe[abi:cxx11](int)"), "describe")
        self.assertEqual(function_of("quire::cpu::name(int)"), "cpu::name")


if __name__ == "__main__":
    unittest.main()
