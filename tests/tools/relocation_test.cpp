// SPDX-License-Identifier: Apache-2.0
// A problem's arguments over a copy of its memory: what a GPU's twin is, without the GPU.
#include "tools/case/relocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "quire/error.h"
#include "tools/case_text.h"

namespace quire::tools {
namespace {

// The buffers' bytes somewhere else, at the same alignment.
class Copy {
 public:
  explicit Copy(const Memory& original) : original_(original) {
    for (const Buffer& buffer : original.buffers()) {
      storage_.emplace_back(buffer.storage.size() + Memory::kAlignment);
      const auto address = reinterpret_cast<std::uintptr_t>(storage_.back().data());
      const auto wanted = reinterpret_cast<std::uintptr_t>(buffer.storage.data());
      starts_.push_back((wanted - address) % Memory::kAlignment);
      std::copy(buffer.storage.begin(), buffer.storage.end(), start(starts_.size() - 1));
    }
  }

  Relocation relocation() {
    return [this](const TensorView& tensor) {
      const Place place = original_.place_of(tensor.data);
      TensorView there = tensor;
      there.data =
          start(place.buffer) + original_.buffers()[place.buffer].data_offset + place.offset;
      return there;
    };
  }

  std::vector<std::string> differences() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const Buffer& buffer = original_.buffers()[i];
      const std::byte* bytes = storage_[i].data() + starts_[i];
      if (!std::equal(buffer.storage.begin(), buffer.storage.end(), bytes)) {
        names.push_back(buffer.name);
      }
    }
    return names;
  }

 private:
  std::byte* start(std::size_t index) { return storage_[index].data() + starts_[index]; }

  const Memory& original_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::size_t> starts_;
};

Context on_reference() {
  Context context;
  context.kernel = "reference";
  return context;
}

// Which tensors a problem has, by the names that its builder gave them: not by what relocation moves, which is tested.
std::string tensors_of(const Case& candidate, const Built& built) {
  std::string tensors = candidate.op;
  for (const Buffer& buffer : built.memory.buffers()) tensors += " " + buffer.name;
  return tensors;
}

// One case for each choice of tensors: what is moved depends on which are there. Packing a weight asks for a kernel that
// reads it packed, and the reference reads none: those are left out.
std::vector<Case> small_cases() {
  std::vector<Case> cases = load_cases(QUIRE_SOURCE_DIR "/cases");
  std::set<std::string> known;
  std::erase_if(cases, [&known](const Case& candidate) {
    if (candidate.has_tag("model")) return true;
    try {
      const Built built = candidate.build(Layout::requested);
      return !built.supports(on_reference()).supported() ||
             !known.insert(tensors_of(candidate, built)).second;
    } catch (const Error&) {
      return true;
    }
  });
  return cases;
}

// An argument that stayed behind would be read or written at home: either way bytes differ.
TEST(Relocation, EveryArgumentDoesOverThereWhatItDoesHere) {
  for (const Case& subject : small_cases()) {
    Built built = subject.build(Layout::requested);
    Copy copy(built.memory);
    const Memory::Snapshot before = built.memory.snapshot();
    const Calls calls = built.relocated(copy.relocation());
    EXPECT_EQ(calls.supports(on_reference()).describe(), built.supports(on_reference()).describe())
        << subject.name;
    calls.run(on_reference());
    EXPECT_TRUE(built.memory.differences(before).empty()) << subject.name << " wrote at home";
    built.run(on_reference());
    EXPECT_TRUE(copy.differences().empty()) << subject.name << " '" << copy.differences().front();
  }
}

// Validation wants all tensors on one device, so that it finds whatever was not moved.
TEST(Relocation, EveryTensorOfEveryOpSaysItsNewDevice) {
  for (const Case& subject : small_cases()) {
    Built built = subject.build(Layout::requested);
    const Calls calls = built.relocated([](const TensorView& tensor) {
      TensorView there = tensor;
      there.device = {.kind = DeviceKind::cuda, .index = 0};
      return there;
    });
    const Plan plan = calls.supports(on_reference());
    EXPECT_FALSE(plan.supported()) << subject.name;
    EXPECT_EQ(plan.refusals.back().reason, "tensors are on cuda:0") << subject.name;
  }
}

TEST(Relocation, PlacesAreInsideTheirBuffer) {
  Memory memory;
  const TensorView first = memory.allocate("first", DType::u8, {16});
  const TensorView none = memory.allocate("none", DType::u8, {0});
  EXPECT_EQ(memory.place_of(first.as<std::byte>() + 5).buffer, 0u);
  EXPECT_EQ(memory.place_of(first.as<std::byte>() + 5).offset, 5);
  EXPECT_EQ(memory.place_of(none.data).buffer, 1u);
  EXPECT_EQ(memory.place_of(none.data).offset, 0);
  EXPECT_THROW(memory.place_of(first.as<std::byte>() + 17), std::logic_error);
}

TEST(DeferredMemory, LargeBuffersAreOnlyDescribed) {
  Memory memory(Backing::deferred);
  const std::vector<std::byte> period(3, std::byte{7});
  const TensorView large = memory.allocate_repeating("large", DType::f32, {1 << 20}, period);
  const TensorView small = memory.allocate_repeating("small", DType::u8, {7}, period);
  EXPECT_TRUE(memory.is_deferred(large.data));
  EXPECT_TRUE(memory.buffers()[0].storage.empty());
  EXPECT_EQ(memory.buffers()[0].period, period);
  EXPECT_EQ(memory.place_of(large.as<float>() + (1 << 20)).offset, 4 << 20);
  EXPECT_FALSE(memory.is_deferred(small.data));
  EXPECT_EQ(small.as<std::uint8_t>()[6], 7);
}

TEST(DeferredMemory, ModelCasesAreBuiltWithoutTheirBytes) {
  for (const Case& subject : load_cases(QUIRE_SOURCE_DIR "/cases")) {
    if (!subject.has_tag("model") || subject.problem->footprint() < 1e9) continue;
    const Built built = subject.build(Layout::deferred);
    std::size_t held = 0;
    for (const Buffer& buffer : built.memory.buffers()) held += buffer.storage.size();
    EXPECT_LT(held, std::size_t{200} << 20) << subject.name;
  }
}

}  // namespace
}  // namespace quire::tools
