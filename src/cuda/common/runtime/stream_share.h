// SPDX-License-Identifier: Apache-2.0
// Which part of a device the work on a stream runs on. Under MPS and MIG the device itself says that it has fewer
// SMs; a green context does not change what the device says, and its streams are asked.
#pragma once

namespace quire::cuda {

struct StreamShare {
  int num_sms = 0;
  int max_cluster = 0;  // thread blocks that find room beside each other
};

// Cheap, waits for nothing, and may be asked while the stream is recorded. The device is the current one.
StreamShare share_of(void* stream, int device);

}  // namespace quire::cuda
