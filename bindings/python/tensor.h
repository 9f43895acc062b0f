// SPDX-License-Identifier: Apache-2.0
// The tensor border: any Python object that can show its memory, as a TensorView. Nothing is ever
// copied.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "quire/tensor_view.h"

namespace quire::python {

enum class Access : std::uint8_t { read, write };

// The op and argument that an Error names.
struct Place {
  std::string op;
  std::string argument;
};

// Keeps the producer's memory valid for as long as it lives, and no longer. Create and destroy with
// the GIL held.
//
// DLPack serves numpy, torch, CuPy and JAX. numpy exports neither ml_dtypes' numbers nor,
// before 2.1, read-only arrays through it, so those two go through __array_interface__; older torch
// does not export fp8, so that is viewed as bytes first.
class BorrowedTensor {
 public:
  // `stream`: the cudaStream_t that will use the memory; the producer orders itself before it.
  BorrowedTensor(nanobind::handle object, Access access, const Place& place,
                 void* stream = nullptr);
  BorrowedTensor(BorrowedTensor&& other) noexcept = default;
  BorrowedTensor& operator=(BorrowedTensor&& other) noexcept = delete;
  ~BorrowedTensor() = default;

  const TensorView& view() const { return view_; }
  bool read_only() const { return read_only_; }

 private:
  void borrow_array_interface(nanobind::handle array, const Place& place);
  void borrow_dlpack(nanobind::handle object, const Place& place, void* stream);

  TensorView view_{};
  bool read_only_ = false;
  nanobind::object owner_;  // the exporting object, or the DLPack capsule
};

}  // namespace quire::python
