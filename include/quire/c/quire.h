// SPDX-License-Identifier: Apache-2.0
// The C interface of Quire, for engines in other languages; docs/c_interface.md has the rest.
//
//   - Functions return a quire_status; quire_last_error() has the text. Nothing has been written after an error, and no
//     C++ exception leaves the library.
//   - Every struct begins with struct_size = sizeof itself. All other fields that are 0 or NULL have their default, so
//     that {.struct_size = sizeof args, .q = &q, …} is complete. A field that is named "optional" may also be cut off:
//     shorter structs are those of older headers. Longer ones are taken where the rest is 0.
//   - Structs, DLTensors and arrays are read during the call alone. Memory belongs to the caller, but for the handles that
//     have a function to free them.
//   - Tensors are on the CPU or on a GPU, as their DLTensor says, all of a call on the same.
#pragma once

#include "quire/c/attention.h"
#include "quire/c/cache.h"
#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/latent.h"
#include "quire/c/mask.h"
#include "quire/c/prepared.h"
#include "quire/c/projection.h"
#include "quire/c/rows.h"
#include "quire/c/sparse.h"
#include "quire/c/status.h"
#include "quire/c/weight.h"
