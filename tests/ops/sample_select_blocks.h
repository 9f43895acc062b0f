// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/sample.h"

namespace quire::test {

// Four index heads over the two of the cache; blocks of two keys.
struct SelectBlocksSample : Sample {
  SelectBlocksSample() {
    op = "select_blocks";
    args.q = arena.random(DType::bf16, {kTokens, 4, 8});
    args.row_offsets = make_row_offsets(arena);
    args.cache = make_cache(arena, {});
    args.layer = kLayer;
    args.block_size = 2;
    args.first_blocks = 1;
    args.out = arena.poisoned(DType::i32, {kTokens, 4, 3});
  }
  void run(const Context& context) override { select_blocks(args, context); }
  Plan supports(const Context& context) override { return quire::supports(args, context); }
  Call prepare(const Context& context) override { return prepared_call(args, context); }
  std::vector<std::pair<std::string, TensorView*>> tensors() override {
    std::vector<std::pair<std::string, TensorView*>> list{{"q", &args.q},
                                                          {"row_offsets", &args.row_offsets}};
    list_cache(args.cache, "cache", list);
    list.emplace_back("out", &args.out);
    return list;
  }
  std::vector<std::string> written() const override { return {"out"}; }

  SelectBlocksArgs args{};
};

}  // namespace quire::test
