// SPDX-License-Identifier: Apache-2.0
// PageManager with plain values: python/quire/pages.py gives them names.
#include "quire/page_manager.h"

#include <nanobind/stl/unique_ptr.h>

#include <vector>

#include "dtype.h"
#include "module.h"
#include "quire/error.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

// A plain int of a list, without the detour that names a wrong one.
bool read_plain(nb::handle item, std::int64_t& value) {
  if (!PyLong_CheckExact(item.ptr())) return false;
  int overflow = 0;
  value = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
  return overflow == 0;
}

// Lists and tuples, the sampled token of a step say, are read as they are; anything else is an array.
template <typename Number> std::vector<Number> read_numbers(nb::handle object, const Place& place) {
  std::vector<Number> numbers;
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    constexpr Range kRange{.lowest = std::numeric_limits<Number>::min(),
                           .highest = std::numeric_limits<Number>::max()};
    const bool is_list = nb::isinstance<nb::list>(object);
    const auto count = static_cast<Py_ssize_t>(nb::len(object));
    numbers.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const nb::handle item =
          is_list ? PyList_GetItem(object.ptr(), i) : PyTuple_GetItem(object.ptr(), i);  // borrowed
      std::int64_t value = 0;
      if (!read_plain(item, value) || value < kRange.lowest || value > kRange.highest) {
        value = whole_number(item, place, kRange);
      }
      numbers.push_back(static_cast<Number>(value));
    }
    return numbers;
  }
  const BorrowedTensor tensor(object, Access::read, place);
  const TensorView& view = tensor.view();
  const bool is_read = (view.dtype == DType::i32 || view.dtype == DType::i64) && view.rank == 1 &&
                       view.device.kind == DeviceKind::cpu;
  if (!is_read) {
    refuse(ErrorCode::invalid_type, place, "a list, or a host array i32[n] or i64[n]", object);
  }
  numbers.resize(static_cast<std::size_t>(view.shape[0]));
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    const std::int64_t at = i * view.strides[0];
    const std::int64_t value = view.dtype == DType::i32
                                   ? static_cast<const std::int32_t*>(view.data)[at]
                                   : static_cast<const std::int64_t*>(view.data)[at];
    if (value < std::numeric_limits<Number>::min() || value > std::numeric_limits<Number>::max()) {
      throw Error(ErrorCode::invalid_value, std::string(place.op), place.name(),
                  "numbers of 32 bits", std::to_string(value));
    }
    numbers[static_cast<std::size_t>(i)] = static_cast<Number>(value);
  }
  return numbers;
}

std::vector<std::int32_t> read_tokens(nb::handle object, std::string_view op) {
  return read_numbers<std::int32_t>(object, {op, "tokens"});
}
SequenceId read_id(nb::handle object, std::string_view op) {
  return whole_number(object, {op, "sequence"});
}

// (scope, [(first, end, key), …])
SequenceKeys read_keys(nb::handle scope, nb::handle tokens, std::string_view op) {
  SequenceKeys keys{.scope = text(scope, {op, "scope"})};
  for (const nb::handle item : tokens) {
    const nb::tuple three = state_of(item, "keys", 3);
    keys.tokens.push_back({.first = whole_number(three[0], {op, "keys", "first"}),
                           .end = whole_number(three[1], {op, "keys", "end"}),
                           .key = text(three[2], {op, "keys", "key"})});
  }
  return keys;
}

PageRule read_rule(nb::handle object) {
  const std::string name = text(object, {"PageManager", "groups", "rule"});
  if (name == "full") return PageRule::full;
  if (name == "sliding_window") return PageRule::sliding_window;
  if (name == "chunk") return PageRule::chunk;
  refuse(ErrorCode::invalid_value, {"PageManager", "groups", "rule"},
         "'full', 'sliding_window' or 'chunk'", object);
}

constexpr Range kInt32{.lowest = std::numeric_limits<std::int32_t>::min(),
                       .highest = std::numeric_limits<std::int32_t>::max()};

// groups: [(rule, page_size, reach, pool), …]; pools: [(pages, host_pages), …]
std::unique_ptr<PageManager> make_manager(nb::handle groups, nb::handle pools, bool caches_prefixes,
                                          bool reuses_partial_pages, nb::handle max_events,
                                          nb::handle hash_seed) {
  constexpr const char* kOp = "PageManager";
  PageManagerOptions options{.groups = {}};
  for (const nb::handle item : groups) {
    const nb::tuple four = state_of(item, kOp, 4);
    options.groups.push_back({.rule = read_rule(four[0]),
                              .page_size = static_cast<std::int32_t>(
                                  whole_number(four[1], {kOp, "groups", "page_size"}, kInt32)),
                              .reach = whole_number(four[2], {kOp, "groups", "reach"}),
                              .pool = static_cast<std::int32_t>(
                                  whole_number(four[3], {kOp, "groups", "pool"}, kInt32))});
  }
  for (const nb::handle item : pools) {
    const nb::tuple two = state_of(item, kOp, 2);
    options.pools.push_back({.pages = whole_number(two[0], {kOp, "pools", "pages"}),
                             .host_pages = whole_number(two[1], {kOp, "pools", "host_pages"})});
  }
  options.caches_prefixes = caches_prefixes;
  options.reuses_partial_pages = reuses_partial_pages;
  options.max_events =
      static_cast<std::size_t>(whole_number(max_events, {kOp, "max_events"}, {.lowest = 0}));
  options.hash_seed = address(hash_seed, {kOp, "hash_seed"});
  return std::make_unique<PageManager>(options);
}

nb::tuple admission(const Admission& made) {
  return nb::make_tuple(made.id, made.cached_tokens, made.partial_tokens);
}

nb::tuple create(PageManager& self, nb::handle tokens, nb::handle scope, nb::handle keys,
                 nb::handle priority) {
  const auto read = read_tokens(tokens, "PageManager.create");
  return admission(self.create(
      read, read_keys(scope, keys, "PageManager.create"),
      static_cast<int>(whole_number(priority, {"PageManager.create", "priority"}, kInt32))));
}
nb::tuple pin(PageManager& self, nb::handle tokens, nb::handle scope, nb::handle keys) {
  const auto read = read_tokens(tokens, "PageManager.pin");
  return admission(self.pin(read, read_keys(scope, keys, "PageManager.pin")));
}
nb::tuple probe(const PageManager& self, nb::handle tokens, nb::handle scope, nb::handle keys) {
  const auto read = read_tokens(tokens, "PageManager.probe");
  const PrefixProbe found = self.probe(read, read_keys(scope, keys, "PageManager.probe"));
  return nb::make_tuple(found.cached_tokens, found.host_pages);
}

std::int64_t step(PageManager& self, nb::handle ids, nb::handle tokens) {
  const auto sequences = read_numbers<std::int64_t>(ids, {"PageManager.step", "sequences"});
  return self.step(sequences, read_tokens(tokens, "PageManager.step"));
}
void advance_all(PageManager& self, nb::handle ids) {
  self.advance_all(read_numbers<std::int64_t>(ids, {"PageManager.advance_all", "sequences"}));
}

// The arrays are kept alive by the caller.
void bind_tables(PageManager& self, nb::handle tables, nb::handle lengths) {
  constexpr const char* kOp = "PageManager.bind_tables";
  const BorrowedTensor rows(lengths, Access::write, {kOp, "cache_lengths"});
  const TensorView& row_view = rows.view();
  const auto is_u32 = [](const TensorView& view, int rank) {
    return (view.dtype == DType::u32 || view.dtype == DType::i32) && view.rank == rank &&
           view.device.kind == DeviceKind::cpu &&
           (view.strides[rank - 1] == 1 || view.shape[rank - 1] <= 1);
  };
  if (!is_u32(row_view, 1)) {
    refuse(ErrorCode::invalid_type, {kOp, "cache_lengths"}, "a host array u32[rows]", lengths);
  }
  std::vector<PageTableView> views;
  for (const nb::handle item : tables) {
    const BorrowedTensor table(item, Access::write, {kOp, "tables"});
    const TensorView& view = table.view();
    if (!is_u32(view, 2) || view.shape[0] != row_view.shape[0]) {
      refuse(ErrorCode::invalid_type, {kOp, "tables"},
             "host arrays u32[rows, columns], as many rows as lengths", item);
    }
    views.push_back({.data = static_cast<std::uint32_t*>(view.data),
                     .row_stride = view.strides[0],
                     .columns = view.shape[1]});
  }
  self.bind_tables(views, static_cast<std::uint32_t*>(row_view.data), row_view.shape[0]);
}

nb::bytes bytes_of(const std::vector<PageCopy>& copies) {
  return nb::bytes(reinterpret_cast<const char*>(copies.data()), copies.size() * sizeof(PageCopy));
}
nb::tuple take_copies(PageManager& self, nb::handle pool) {
  const PageCopies copies = self.take_copies(
      static_cast<int>(whole_number(pool, {"PageManager.take_copies", "pool"}, kInt32)));
  return nb::make_tuple(bytes_of(copies.to_host), bytes_of(copies.from_host),
                        bytes_of(copies.on_device));
}

nb::tuple words(const BlockHash& hash) {
  return nb::make_tuple(hash.low, hash.high);
}
nb::list take_events(PageManager& self) {
  nb::list events;
  for (const PageEvent& event : self.take_events()) {
    nb::list tokens;
    for (const std::int32_t token : event.tokens) tokens.append(token);
    events.append(nb::make_tuple(event.is_stored, event.tier == PageTier::host ? "host" : "device",
                                 event.group, words(event.hash), words(event.parent), event.end,
                                 tokens));
  }
  return events;
}

nb::list list_of(const std::vector<std::int64_t>& numbers) {
  nb::list list;
  for (const std::int64_t number : numbers) list.append(number);
  return list;
}
nb::dict statistics(const PageManager& self) {
  const PageStatistics now = self.statistics();
  nb::dict named;
  named["free_pages"] = list_of(now.free_pages);
  named["cached_pages"] = list_of(now.cached_pages);
  named["used_pages"] = list_of(now.used_pages);
  named["host_pages"] = list_of(now.host_pages);
  named["sequences"] = now.sequences;
  named["lookups"] = now.lookups;
  named["queried_tokens"] = now.queried_tokens;
  named["hit_tokens"] = now.hit_tokens;
  named["partial_tokens"] = now.partial_tokens;
  named["evicted_pages"] = now.evicted_pages;
  named["offloaded_pages"] = now.offloaded_pages;
  named["onloaded_pages"] = now.onloaded_pages;
  named["copied_pages"] = now.copied_pages;
  named["lost_events"] = now.lost_events;
  return named;
}

template <typename Number> nb::bytes raw(const std::vector<Number>& numbers) {
  return nb::bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

using Self = PageManager;

// How a sequence lives.
void bind_operations(nb::class_<PageManager>& manager) {
  const auto count_of = [](nb::handle count, const char* op, const char* name) {
    return whole_number(count, {op, name});
  };
  manager
      .def(nb::new_(&make_manager), nb::arg("groups"), nb::arg("pools"), nb::arg("caches_prefixes"),
           nb::arg("reuses_partial_pages"), nb::arg("max_events"), nb::arg("hash_seed"))
      .def("create", create, nb::arg("tokens"), nb::arg("scope"), nb::arg("keys"),
           nb::arg("priority"))
      .def("pin", pin, nb::arg("tokens"), nb::arg("scope"), nb::arg("keys"))
      .def("probe", probe, nb::arg("tokens"), nb::arg("scope"), nb::arg("keys"))
      .def(
          "append",
          [](Self& self, nb::handle id, nb::handle tokens) {
            constexpr const char* kOp = "PageManager.append";
            self.append(read_id(id, kOp), read_tokens(tokens, kOp));
          },
          nb::arg("sequence"), nb::arg("tokens"))
      .def(
          "extend",
          [count_of](Self& self, nb::handle id, nb::handle count) {
            constexpr const char* kOp = "PageManager.extend";
            return self.extend(read_id(id, kOp), count_of(count, kOp, "count"));
          },
          nb::arg("sequence"), nb::arg("count"))
      .def(
          "advance",
          [count_of](Self& self, nb::handle id, nb::handle count) {
            constexpr const char* kOp = "PageManager.advance";
            self.advance(read_id(id, kOp), count_of(count, kOp, "count"));
          },
          nb::arg("sequence"), nb::arg("count"))
      .def("step", step, nb::arg("sequences"), nb::arg("tokens"))
      .def("advance_all", advance_all, nb::arg("sequences"))
      .def(
          "trim",
          [count_of](Self& self, nb::handle id, nb::handle length) {
            constexpr const char* kOp = "PageManager.trim";
            self.trim(read_id(id, kOp), count_of(length, kOp, "length"));
          },
          nb::arg("sequence"), nb::arg("length"));
}

// What a manager is told and asked beside that.
void bind_reports(nb::class_<PageManager>& manager) {
  const auto count_of = [](nb::handle count, const char* op, const char* name) {
    return whole_number(count, {op, name});
  };
  manager
      .def(
          "fork",
          [](Self& self, nb::handle id) { return self.fork(read_id(id, "PageManager.fork")); },
          nb::arg("sequence"))
      .def(
          "free", [](Self& self, nb::handle id) { self.free(read_id(id, "PageManager.free")); },
          nb::arg("sequence"))
      .def(
          "length",
          [](const Self& self, nb::handle id) {
            return self.length(read_id(id, "PageManager.length"));
          },
          nb::arg("sequence"))
      .def(
          "tokens",
          [](const Self& self, nb::handle id) {
            return raw(self.tokens(read_id(id, "PageManager.tokens")));
          },
          nb::arg("sequence"))
      .def(
          "pages",
          [](const Self& self, nb::handle id, nb::handle group) {
            constexpr const char* kOp = "PageManager.pages";
            return raw(self.pages(read_id(id, kOp),
                                  static_cast<int>(whole_number(group, {kOp, "group"}, kInt32))));
          },
          nb::arg("sequence"), nb::arg("group"))
      .def("bind_tables", bind_tables, nb::arg("tables"), nb::arg("cache_lengths"))
      .def(
          "place",
          [count_of](Self& self, nb::handle id, nb::handle row) {
            constexpr const char* kOp = "PageManager.place";
            self.place(read_id(id, kOp), count_of(row, kOp, "row"));
          },
          nb::arg("sequence"), nb::arg("row"))
      .def(
          "displace",
          [](Self& self, nb::handle id) { self.displace(read_id(id, "PageManager.displace")); },
          nb::arg("sequence"))
      .def("take_copies", take_copies, nb::arg("pool"))
      .def("take_events", take_events)
      .def("statistics", statistics)
      .def("clear_cache", &PageManager::clear_cache);
}

}  // namespace

void bind_page_manager(nb::module_& module) {
  nb::class_<PageManager> manager(module, "PageManager");
  bind_operations(manager);
  bind_reports(manager);
}

}  // namespace quire::python
