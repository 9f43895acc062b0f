// SPDX-License-Identifier: Apache-2.0
// Whole pages of the cache copied onto others, element by element.
#pragma once

#include "quire/ops/copy_pages.h"

namespace quire::reference {

void copy_pages(const CopyPagesArgs& args);

}  // namespace quire::reference
