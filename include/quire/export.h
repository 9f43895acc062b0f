// SPDX-License-Identifier: Apache-2.0
// What libquire.so shows. The library is compiled with hidden visibility: a function that users
// call, and a class with members that the library defines, is marked QUIRE_API where it is declared.
#pragma once

#if defined(__GNUC__)
#define QUIRE_API __attribute__((visibility("default")))
#else
#define QUIRE_API
#endif
