// SPDX-License-Identifier: Apache-2.0
// Random problems of the ops over plain rows: merge_states, quantize_fp8, the index rows, and those over integers.
#include <algorithm>

#include "fuzz/problems/random_case.h"

namespace quire::test {
namespace {

using nlohmann::json;

// The keys that store_index_keys and quantize_index_queries have in common.
json random_index_rows(Draw& draw, bool is_written) {
  const RandomLengths lengths = random_lengths(draw, 70, 130);
  const std::int64_t width = draw.pick<std::int64_t>({1, 2, 4, 7, 8, 16, 20, 32, 33, 64, 128},
                                                     {32, 40, 64, 128, 128, 132});
  json cache{{"latent", width}, {"rope", 0}, {"dtype", "fp8_e4m3"}, {"row_format", "scaled"}};
  cache["scales"] = draw.pick<const char*>({"dynamic", "dynamic", "own_table"});
  if (!is_written && draw.one_in(4)) cache["scales"] = "static";
  add_pages(draw, lengths, cache);
  cache.erase("order");
  json object{{"lengths", lengths.json()},
              {"cache", cache},
              {"x_dtype", random_float(draw)},
              {"freqs_dtype", draw.pick<const char*>({"f32", "f32", "f16", "bf16"})},
              {"scale_rounding", draw.pick<const char*>({"exact", "power_of_two"})},
              {"amplitude", draw.pick({1.0, 1.0, 1e-4, 50.0, 0.0})}};
  if (width >= 2 && draw.one_in(2)) object["rope_dim"] = 2 * draw.between(1, width / 2);
  if (draw.one_in(2)) object["interleaved"] = true;
  const bool is_power = (width & (width - 1)) == 0;
  if (is_power && draw.one_in(2)) object["hadamard"] = true;
  if (draw.one_in(4)) object["mean"] = draw.pick({0.5, -3.0, 100.0});
  return object;
}

}  // namespace

json random_merge_states(Draw& draw) {
  const std::int64_t states = draw.pick({1, 2, 2, 3, 4, 7, 9}, {1, 2, 2, 3, 4, 16, 33});
  const std::int64_t tokens = draw.pick({0, 1, 2, 3, 5, 9}, {0, 1, 2, 33, 70});
  json object{{"states", states},
              {"tokens", tokens},
              {"heads", draw.pick({1, 2, 3, 8}, {1, 2, 8, 40})},
              {"value_dim", draw.pick({1, 2, 7, 8, 16, 17, 33, 64}, {1, 8, 33, 64, 128, 512})},
              {"dtype", random_float(draw)}};
  if (draw.one_in(4)) object["lse"] = false;
  if (draw.one_in(3)) object["empty_states"] = json::array({draw.below(states)});
  if (tokens > 0 && draw.one_in(3)) object["blind_tokens"] = json::array({draw.below(tokens)});
  return object;
}

json random_quantize_fp8(Draw& draw) {
  const std::int64_t rows = draw.pick({0, 1, 2, 3, 5, 8}, {0, 1, 7, 64, 130});
  const std::int64_t columns =
      draw.pick({1, 2, 7, 8, 15, 16, 17, 33, 64, 127, 128, 129, 200}, {1, 64, 128, 200, 512, 1000});
  json object{{"rows", rows},
              {"columns", columns},
              {"x_dtype", random_float(draw)},
              {"out_dtype", draw.one_in(3) ? "fp8_e5m2" : "fp8_e4m3"},
              {"scale_rounding", draw.pick<const char*>({"exact", "power_of_two"})},
              {"amplitude", draw.pick({1.0, 1.0, 1e-7, 1e-3, 448.0, 1e4})}};
  if (object["scale_rounding"] == "power_of_two" && draw.one_in(2)) object["scale_dtype"] = "e8m0";
  if (!draw.one_in(3)) object["group_size"] = draw.pick({1, 2, 7, 8, 16, 32, 64, 128, 300});
  if (draw.one_in(4)) object["scale_upper_bound"] = draw.pick({1e-3, 1.0, 1200.0});
  if (rows > 0 && draw.one_in(3)) object["zero_rows"] = json::array({draw.below(rows)});
  return object;
}

json random_store_index_keys(Draw& draw) {
  json object = random_index_rows(draw, /*is_written=*/true);
  if (draw.one_in(3)) {
    object["norm"] = false;
    return object;
  }
  object["norm_dtype"] = random_float(draw);
  if (draw.one_in(3)) object["epsilon"] = draw.pick({1e-12, 1e-5, 1.0});
  return object;
}

json random_quantize_index_queries(Draw& draw) {
  json object = random_index_rows(draw, /*is_written=*/false);
  object["heads"] = draw.pick({1, 2, 3, 8}, {1, 3, 64});
  if (draw.one_in(3)) {
    object["weights"] = false;
  } else {
    object["weights_dtype"] = random_float(draw);
  }
  if (draw.one_in(2)) object["factor"] = draw.pick({0.0, -2.0, 0.088, 1e3});
  return object;
}

json random_row_offsets(Draw& draw) {
  json added = json::array();
  json cached = json::array();
  const std::int64_t batch = draw.pick({0, 1, 2, 3, 7, 8, 33, 200});
  for (std::int64_t b = 0; b < batch; ++b) {
    added.push_back(draw.pick({0, 1, 2, 1000, 100000}));
    cached.push_back(draw.pick({0, 1, 17, 100000, 1000000}));
  }
  return {{"lengths", {{"new", added}, {"cached", cached}}}};
}

json random_remap_sparse_indices(Draw& draw) {
  const RandomLengths lengths = random_lengths(draw, 33, 700);
  json cache{{"latent", draw.pick({1, 8, 64})}, {"rope", draw.pick({0, 2, 8})}};
  add_pages(draw, lengths, cache);
  cache.erase("order");
  json object{{"lengths", lengths.json()},
              {"cache", cache},
              {"top_k", draw.pick({1, 2, 7, 8, 16, 17, 33, 64}, {1, 7, 16, 64, 65, 2048})},
              {"indices", draw.pick<const char*>({"chosen", "hostile", "hostile", "none"})}};
  if (draw.one_in(3)) object["in_place"] = true;
  return object;
}

}  // namespace quire::test
