// SPDX-License-Identifier: Apache-2.0
#include "ops/bad_input.h"
#include "ops/sample_select_blocks.h"

namespace quire::test {
namespace {

INSTANTIATE_TEST_SUITE_P(
    SelectBlocks, BadInputTest,
    testing::Values(
        bad<SelectBlocksSample>("heads_do_not_divide", "q", "a multiple of 2 heads",
                                [](auto& s) { s.args.q.shape[1] = 3; }),
        bad<SelectBlocksSample>("head_dim", "q", "8 wide like the cache",
                                [](auto& s) { s.args.q.shape[2] = 6; }),
        bad<SelectBlocksSample>("q_strided", "q", "stride 1",
                                [](auto& s) { s.args.q.strides[2] = 2; }),
        bad<SelectBlocksSample>("blocks_of_no_keys", "block_size", "got 0",
                                [](auto& s) { s.args.block_size = 0; }),
        bad<SelectBlocksSample>("fewer_first_blocks_than_none", "first_blocks", "got -1",
                                [](auto& s) { s.args.first_blocks = -1; }),
        bad<SelectBlocksSample>("fewer_local_blocks_than_none", "local_blocks", "got -2",
                                [](auto& s) { s.args.local_blocks = -2; }),
        bad<SelectBlocksSample>("more_forced_blocks_than_slots", "out",
                                "of 1 first and 3 local blocks or more, got i32[5, 4, 3]",
                                [](auto& s) { s.args.local_blocks = 3; }),
        bad<SelectBlocksSample>("no_slots", "out", "at least 1 in every size",
                                [](auto& s) { s.args.out.shape[2] = 0; }),
        bad<SelectBlocksSample>("out_of_kv_heads", "out", "must be i32[5, 4, max_blocks]",
                                [](auto& s) { s.args.out.shape[1] = 2; }),
        bad_type<SelectBlocksSample>("unsigned_out", "out", "must be i32, got u32[5, 4, 3]",
                                     [](auto& s) { s.args.out.dtype = DType::u32; }),
        bad<SelectBlocksSample>("out_over_q", "out", "apart from 'q'",
                                [](auto& s) { s.args.out.data = s.args.q.data; }),
        bad<SelectBlocksSample>("out_that_overlaps", "out", "do not share memory",
                                [](auto& s) { s.args.out.strides[1] = 1; }),
        bad<SelectBlocksSample>("window", "mask", "causal or full",
                                [](auto& s) { s.args.mask = Mask::sliding_window(4); })),
    bad_input_name);

}  // namespace
}  // namespace quire::test
