// SPDX-License-Identifier: Apache-2.0
// Keys: every row is a token of its own, so that its angles are loaded with it.
#include "cuda/hopper/index_rows/row_slots.cuh"
#include "cuda/hopper/index_rows/vectors.cuh"

namespace quire::cuda::hopper {
namespace {

template <DType kXType, int kRowLanes>
struct KeyConfig : IndexRowConfig<kXType, kRowLanes, KeyTarget> {
  static constexpr int kMostRows = 2 * kRowLanes;  // as many as there is room for their places
  static constexpr int kMinBlocks = 5;
};

// quantize_index_rows() with rows and angles two ahead.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    quantize_keys(const __grid_constant__ IndexRowParams params,
                  const __grid_constant__ KeyTarget target, int group_rows) {
  __shared__ TokenTarget tokens[Config::kGroups * Config::kMostRows + 1];
  __shared__ alignas(16) float norm[2 * Config::kNormColumns];
  __shared__ RowSlots<Config> slots;
  const BlockRows rows(params, Config::kGroups * group_rows);
  const RowQuantizer<Config> quantizer(params, target, norm);
  const auto own = static_cast<int>(threadIdx.x) / Config::kLanes * group_rows;
  const int last = min(own + group_rows, rows.count);
  RowCursor ahead = rows.cursor(params, own);
  ahead.x += quantizer.lane() * kEight * (bits(Config::kX) / 8);
  RowCursor at = ahead;
  RowCursor second = ahead;
  second.advance(params, rows.heads);
  if (own < last) slots.fetch_row(0, at.x);
  if (own + 1 < last) slots.fetch_row(1, second.x);
  load_norm<Config>(params, norm);
  find_tokens<Config>(params, target, rows.first_token, rows.num_tokens(params), tokens);
  __syncthreads();
  if (own < last) slots.fetch_angles(0, params, quantizer.lane(), tokens[at.token].position);
  commit_slot();
  if (own + 1 < last) {
    slots.fetch_angles(1, params, quantizer.lane(), tokens[second.token].position);
  }
  commit_slot();
  ahead = second;
#pragma unroll 1
  for (int row = own; row < own + group_rows; ++row) {
    const int slot = (row - own) % RowSlots<Config>::kDepth;
    wait_for_slot();
    typename RowQuantizer<Config>::Raw raw;
    RowAngles angles;
    slots.take_row(slot, raw);
    slots.take_angles(slot, params.freqs_dtype, angles);
    const RowCursor here = at;
    at.advance(params, rows.heads);
    ahead.advance(params, rows.heads);
    if (row + RowSlots<Config>::kDepth < last) {
      slots.fetch_row(slot, ahead.x);
      slots.fetch_angles(slot, params, quantizer.lane(), tokens[ahead.token].position);
    }
    commit_slot();
    TokenTarget place;  // rows past the end are nobody's: the shuffles stay whole
    if (row < last) place = tokens[here.token];
    quantizer.store(raw, angles, place, here.head, 1.0f);
  }
}

template <DType kX, int kLanes>
void launch_keys(const IndexRowParams& params, const KeyTarget& target,
                 const IndexRowLaunch& launched) {
  using Config = KeyConfig<kX, kLanes>;
  const std::int64_t group_rows = rows_of_a_group<Config>(params, launched);
  launch(
      quantize_keys<Config>,
      {.grid = dim3(num_blocks(params.tokens * params.heads.value(), Config::kGroups * group_rows)),
       .block = dim3(Config::kThreads)},
      launched.stream, params, target, static_cast<int>(group_rows));
}

template <DType kX>
void launch_keys_of(const IndexRowParams& params, const KeyTarget& target,
                    const IndexRowLaunch& launched) {
  if (params.columns == kRowColumns<2>) return launch_keys<kX, 2>(params, target, launched);
  launch_keys<kX, 4>(params, target, launched);
}

}  // namespace

void launch_vectors(const IndexRowParams& params, const KeyTarget& target,
                    const IndexRowLaunch& launched) {
  if (params.x_dtype == DType::bf16) return launch_keys_of<DType::bf16>(params, target, launched);
  if (params.x_dtype == DType::f16) return launch_keys_of<DType::f16>(params, target, launched);
  launch_type<DType::f32>(params, target, launched);
}

}  // namespace quire::cuda::hopper
