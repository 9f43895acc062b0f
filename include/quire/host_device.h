// SPDX-License-Identifier: Apache-2.0
// One word for functions that a CUDA kernel calls too; plain C++ compilers see nothing.
#pragma once

#if defined(__CUDACC__)
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif
