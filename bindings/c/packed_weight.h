// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quire/c/weight.h"
#include "quire/weight.h"

struct quire_packed_weight {
  quire::Weight view;  // of the caller's storage
};
