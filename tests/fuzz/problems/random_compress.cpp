// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/random_case.h"

namespace quire::test {

using nlohmann::json;

json random_compress_keys(Draw& draw) {
  const std::int64_t ratio = draw.pick({1, 2, 3, 4, 4, 5, 8, 16}, {4, 4, 4, 16, 128});
  const RandomLengths lengths =
      random_lengths(draw, draw.is_small() ? 33 : 300, draw.is_small() ? 60 : 300);
  json cache = random_latent_cache(draw, lengths.compressed(ratio));
  if (draw.one_in(2)) use_power_scales(draw, cache);
  // Static scales are as large as a row's own would be; gamma brings the pooled row back to about 1.
  const auto width = cache["latent"].get<std::int64_t>() + cache["rope"].get<std::int64_t>();
  const bool has_overlap = draw.one_in(2);
  json object{{"lengths", lengths.json()},
              {"ratio", ratio},
              {"cache", cache},
              {"rope_dim", 2 * draw.between(1, width / 2)},
              {"kv_dtype", random_float(draw)}};
  if (has_overlap) object["overlap"] = true;
  if (draw.one_in(3)) object["state_f32"] = false;
  if (draw.one_in(3)) object["state_rows"] = (has_overlap ? 2 : 1) * ratio + draw.between(0, 9);
  if (draw.one_in(2)) object["state_slots"] = true;
  if (draw.one_in(3)) object["gate_amplitude"] = draw.pick({0.0, 0.01, 10.0, 60.0});
  if (draw.one_in(4)) object["epsilon"] = draw.pick({1e-2, 1e-12});
  return object;
}

}  // namespace quire::test
