// SPDX-License-Identifier: Apache-2.0
// The `quire` command. Exit codes: 0 done, 1 something failed its check, 2 the request could not be
// carried out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "tools/bench/bench_command.h"
#include "tools/check/check_command.h"
#include "tools/demo/demo.h"
#include "tools/info/info_command.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

constexpr int kUsageError = 2;

void add_folder(CLI::App* command, std::string& folder) {
  folder = QUIRE_SOURCE_DIR "/cases";
  command->add_option("--cases", folder, "folder of the case files");
}

void add_device(CLI::App* command, std::string& device) {
  command->add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
}

void add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* check = app.add_subcommand("check", "check cases against the reference");
  check->add_option("case", options.cases, "names or beginnings of names, ops, files");
  add_device(check, options.device);
  check->add_option("--target", options.target, "only kernels whose name starts so");
  check->add_option("--repeat", options.repeats, "bit-identical runs after the first")
      ->check(CLI::PositiveNumber);
  check->add_flag("--all", options.all, "model cases too");
  check->add_flag("--list", options.list, "list the cases instead");
  add_folder(check, options.folder);
}

void add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* bench = app.add_subcommand("bench", "time cases");
  bench->add_option("case", options.cases, "names or beginnings of names, ops, files");
  add_device(bench, options.device);
  bench->add_option("--target", options.target, "only kernels whose name starts so");
  bench->add_option("--json", options.json, "write one JSON object per case to this file");
  bench->add_option("--against", options.against,
                    "JSON lines to compare with, joined on op and shape");
  bench->add_option("--plot", options.plot, "write a bar chart (SVG) to this file");
  bench->add_option("--commit", options.commit, "what the record says was built, if not HEAD");
  bench->add_option("--seconds", options.seconds, "time per case")->check(CLI::PositiveNumber);
  bench->add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  bench->add_flag("--host", options.host, "what calls cost the host (cuda)");
  add_folder(bench, options.folder);
}

void add_info(CLI::App& app, InfoOptions& options) {
  CLI::App* info = app.add_subcommand("info", "machine, backends, and which kernel serves what");
  add_device(info, options.device);
  info->add_flag("--support", options.support, "one line per case");
  add_folder(info, options.folder);
}

void add_demo(CLI::App& app, DemoOptions& options) {
  CLI::App* demo = app.add_subcommand("demo", "a small serving run through every op");
  add_device(demo, options.device);
  demo->add_option("--target", options.kernel, "only kernels whose name starts so");
  demo->add_option("--requests", options.num_requests, "requests per stack");
  demo->add_option("--seed", options.seed, "of weights and prompts");
  demo->add_flag("--verbose", options.verbose, "the generated tokens too");
}

// What was printed may still fail to reach a full disk: then nothing was done.
template <typename Command> int run_and_flush(Command&& command) {
  try {
    const int code = command();
    flush_stdout();
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", error.what());
    return kUsageError;
  }
}

int run(int argc, char** argv) {
  CLI::App app("Quire: LLM attention kernels around a paged KV cache", "quire");
  app.set_version_flag("--version", QUIRE_VERSION);
  app.require_subcommand(1);
  CheckOptions check_options;
  BenchOptions bench_options;
  InfoOptions info_options;
  DemoOptions demo_options;
  add_info(app, info_options);
  add_check(app, check_options);
  add_bench(app, bench_options);
  add_demo(app, demo_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return run_and_flush([&] { return app.exit(error) == 0 ? 0 : kUsageError; });
  }
  return run_and_flush([&] {
    if (app.got_subcommand("info")) return run_info(info_options);
    if (app.got_subcommand("check")) return run_check(check_options);
    if (app.got_subcommand("bench")) return run_bench(bench_options);
    return run_demo(demo_options);
  });
}

}  // namespace
}  // namespace quire::tools

int main(int argc, char** argv) {
  return quire::tools::run(argc, argv);
}
