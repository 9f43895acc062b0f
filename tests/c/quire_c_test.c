// SPDX-License-Identifier: Apache-2.0
// The C interface from C11: every op once on the CPU, errors, sizes of structs, prepared calls.
#include <stdio.h>
#include <string.h>

#include "testing.h"
#include "tests.h"

int main(void) {
  CHECK(quire_c_abi_version() == QUIRE_C_ABI_VERSION);
  CHECK(strlen(quire_version()) >= 5);
  CHECK(strcmp(quire_last_error(), "") == 0);
  test_rows();
  test_attention();
  test_projection();
  test_latent();
  test_sparse();
  test_row_format();
  test_errors();
  test_struct_sizes();
  test_prepared();
  printf("%d failure(s)\n", num_failures());
  return num_failures() == 0 ? 0 : 1;
}
