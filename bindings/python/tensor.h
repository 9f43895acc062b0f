// SPDX-License-Identifier: Apache-2.0
// The tensor border: any Python object that can show its memory, as a TensorView. Nothing is ever
// copied.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "dlpack.h"
#include "place.h"
#include "quire/tensor_view.h"

namespace quire::python {

enum class Access : std::uint8_t { read, write };

// Keeps the producer's memory valid for as long as it lives, and no longer. Create and destroy with
// the GIL held.
//
// torch from 2.10 on is read through DLPack's C functions and numpy through its buffers, at a fraction of the cost of a
// method call each. The rest of torch, CuPy and JAX hand out DLPack capsules; ml_dtypes' numbers, which numpy exports in
// neither way, go through __array_interface__; older torch does not export fp8, so that is viewed as bytes first.
class BorrowedTensor {
 public:
  // `stream`: the cudaStream_t that will use the memory; the producer orders itself before it.
  BorrowedTensor(nanobind::handle object, Access access, const Place& place,
                 void* stream = nullptr);
  BorrowedTensor(BorrowedTensor&& other) noexcept = default;
  BorrowedTensor& operator=(BorrowedTensor&& other) noexcept = delete;
  ~BorrowedTensor() = default;

  const TensorView& view() const { return view_; }
  // The object that it was read from.
  nanobind::handle source() const { return source_; }
  Access access() const { return access_; }
  bool read_only() const { return read_only_; }

 private:
  // What a framework would compute on reading, and a kernel would not.
  static void refuse_pending_sign(nanobind::handle object, Access access, const Place& place);
  // False where the object does not offer that way.
  bool borrow_exchanged(nanobind::handle object, const Place& place, void* stream);
  bool borrow_buffer(nanobind::handle array);
  void borrow_capsule(nanobind::handle object, const Place& place, void* stream);
  void borrow_array_interface(nanobind::handle array, const Place& place);
  void borrow_slowly(nanobind::handle object, const Place& place, void* stream);
  void read(const dlpack::Tensor& tensor, std::uint64_t flags, nanobind::handle object,
            const Place& place);

  TensorView view_{};
  bool read_only_ = false;
  Access access_;
  nanobind::object source_;
  nanobind::object owner_;  // the exporting object, its buffer, or the DLPack capsule
};

}  // namespace quire::python
