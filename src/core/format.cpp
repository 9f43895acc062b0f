// SPDX-License-Identifier: Apache-2.0
// The compiled half of fmt 9, which the other sources only declare (cmake/QuireFmt.cmake). With a later fmt every
// source holds its own, and this one nothing.
#if !defined(FMT_HEADER_ONLY)
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;

}  // namespace detail
FMT_END_NAMESPACE
#endif
