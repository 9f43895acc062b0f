// SPDX-License-Identifier: Apache-2.0
// How often this thread has called operator new, which allocation_count.cpp replaces for the whole test program.
#pragma once

namespace quire::test {

int num_allocations();

}  // namespace quire::test
