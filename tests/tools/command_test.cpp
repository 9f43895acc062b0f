// SPDX-License-Identifier: Apache-2.0
// The built binary, as a user calls it: exit codes, last lines, one line on stderr for a mistake.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace {

struct Finished {
  int exit_code = -1;
  std::string output;  // stdout and stderr

  std::string last_line() const {
    const std::string body = output.substr(0, output.find_last_not_of('\n') + 1);
    return body.substr(body.find_last_of('\n') + 1);
  }
};

Finished quire(const std::string& arguments) {
  Finished run;
  const bool redirects = arguments.find('>') != std::string::npos;
  FILE* pipe =
      popen((std::string(QUIRE_TOOL) + " " + arguments + (redirects ? "" : " 2>&1")).c_str(), "r");
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), chunk.size(), pipe) != nullptr) run.output += chunk.data();
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

// Names of the files of cases, without their ending.
std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/cases")) {
    if (file.path().extension() == ".json") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Tiny and edge cases of a file, or of all.
int count_cases(const std::string& file) {
  return std::stoi(quire("check --list " + file).last_line());
}

// What stands on a terminal that is the command's stdout and stderr; nothing where the system has no terminals to give,
// as in a container without /dev/pts.
std::optional<std::string> on_terminal(const std::string& arguments) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) return std::nullopt;
  if (child == 0) {
    const std::string command = std::string(QUIRE_TOOL) + " " + arguments;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string output;
  std::array<char, 4096> chunk{};
  // A read fails when the command has gone.
  for (ssize_t count = 0; (count = read(terminal, chunk.data(), chunk.size())) > 0;) {
    output.append(chunk.data(), static_cast<std::size_t>(count));
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  return output;
}

class CommandFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  quire::test::TempFolder folder_;
};

// Of a file at a time: with sanitizers all of them take most of an hour.
class CaseFile : public testing::TestWithParam<std::string> {};

TEST_P(CaseFile, CheckPassesEveryTinyAndEdgeCase) {
  const Finished run = quire("check " + GetParam());
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.last_line().ends_with(" passed, 0 failed")) << run.last_line();
  EXPECT_EQ(std::stoi(run.last_line()), count_cases(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Command, CaseFile, testing::ValuesIn(case_files()),
                         [](const auto& test) { return test.param; });

TEST(Command, EveryCaseIsInOneOfTheFiles) {
  int in_files = 0;
  for (const std::string& file : case_files()) in_files += count_cases(file);
  EXPECT_EQ(in_files, count_cases(""));
  EXPECT_GE(in_files, 1000);
}

TEST(Command, CheckOfNamedCases) {
  const Finished run = quire("check rope/tiny store/tiny");
  EXPECT_EQ(run.exit_code, 0);
  // "store/tiny" is also the beginning of "store/tiny_values".
  EXPECT_EQ(run.last_line(), "3 passed, 0 failed");
}

TEST_F(CommandFile, CheckFailsWithExitCodeOne) {
  std::ofstream(path("a.json")) << R"([{"name": "bad", "op": "flash_attention", "tags": ["tiny"],
    "lengths": {"new": [1], "cached": [0]}, "heads": 2, "softcap": -1,
    "cache": {"kv_heads": 2, "head_dim": 8, "page_size": 4}}])";
  const Finished run = quire("check --cases " + folder_.string());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.last_line(), "0 passed, 1 failed");
  EXPECT_NE(run.output.find("FAILED  bad"), std::string::npos);
  EXPECT_NE(run.output.find("'softcap'"), std::string::npos);
}

TEST_F(CommandFile, MistakeInACaseFileIsOneLine) {
  std::ofstream(path("a.json"))
      << R"([{"name": "bad", "op": "rope", "tags": ["tiny"], "head": 1}])";
  const Finished run = quire("check --cases " + folder_.string());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.output,
            "quire: a.json: case 'bad': key 'lengths' must be an object, got nothing\n");
}

TEST(Command, CheckOfAnUnknownCase) {
  const Finished run = quire("check rope/tinny");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.output, "quire: no case is called 'rope/tinny'\n");
}

TEST(Command, CheckListsCasesWithoutRunning) {
  const Finished run = quire("check --list --all");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("attn.decode.bf16 | h32/8 d128 B=1 ctx=1024 page=128"),
            std::string::npos);
  EXPECT_TRUE(run.last_line().ends_with(" cases"));
}

// A check of nothing is no success.
TEST(Command, TargetThatNoKernelHas) {
  const Finished run = quire("check rope/tiny --target cpu/none");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.output.find("1 skipped: no kernel 'cpu/none' takes them"), std::string::npos);
  EXPECT_EQ(run.last_line(), "0 passed, 0 failed");
}

TEST(Command, CheckSaysThatModelCasesAreLeftOut) {
  const Finished run = quire("check rope/model");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.output.find(" model cases left out: "), std::string::npos) << run.output;
  EXPECT_EQ(run.last_line(), "0 passed, 0 failed");
}

TEST(Command, TargetReferenceIsTaken) {
  EXPECT_EQ(quire("check rope/tiny --target reference").last_line(), "1 passed, 0 failed");
}

TEST(Command, UsageErrorsExitWithTwo) {
  EXPECT_EQ(quire("").exit_code, 2);
  EXPECT_EQ(quire("chekc").exit_code, 2);
  EXPECT_EQ(quire("check --device tpu").exit_code, 2);
  EXPECT_EQ(quire("bench --seconds -1").exit_code, 2);
}

// One clear line, where there is no GPU or no CUDA in the build; otherwise the case runs there.
TEST(Command, DeviceThatIsNotThere) {
  for (const std::string command : {"check rope/tiny", "bench rope/tiny", "info"}) {
    const Finished run = quire(command + " --device cuda");
    if (run.exit_code == 0) continue;
    EXPECT_EQ(run.exit_code, 2) << run.output;
    EXPECT_EQ(run.output.find("quire: --device cuda: "), 0u) << run.output;
  }
}

TEST(Command, HelpAndVersion) {
  EXPECT_EQ(quire("--help").exit_code, 0);
  const Finished version = quire("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.output, QUIRE_VERSION "\n");
}

TEST_F(CommandFile, BenchWritesJsonPlotAndRatio) {
  std::ofstream(path("peers.jsonl"))
      << R"({"op": "rope", "shape": "rope/tiny", "peer": "somebody", "us": 2})"
         "\n";
  const Finished run = quire("bench rope/tiny --seconds 0.01 --json " + path("rows.jsonl") +
                             " --plot " + path("rows.svg") + " --against " + path("peers.jsonl"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("x the time of somebody"), std::string::npos) << run.output;
  std::ifstream file(path("rows.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(nlohmann::json::parse(line).at("case"), "rope/tiny");
  EXPECT_GT(std::filesystem::file_size(path("rows.svg")), 100u);
}

// A result that did not reach its reader is no success.
TEST(Command, FullOutputIsAnError) {
  for (const std::string command :
       {"check rope/tiny", "check --list", "info", "bench rope/tiny --seconds 0.01", "demo",
        "--version", "--help"}) {
    // The shell writes stderr where stdout was before it became /dev/full.
    const Finished run = quire(command + " 2>&1 >/dev/full");
    EXPECT_EQ(run.exit_code, 2) << command;
    EXPECT_EQ(run.last_line().find("quire: "), 0u) << command << ": " << run.output;
  }
}

TEST_F(CommandFile, OutputFilesAreOpenedBeforeTheFirstMeasurement) {
  for (const std::string option : {"--json ", "--plot "}) {
    const Finished run = quire("bench rope/tiny --seconds 0.01 " + option + path("nowhere/rows"));
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.output, "quire: " + path("nowhere/rows") +
                              ": cannot be written: No such file or directory\n");
  }
  const Finished full = quire("bench rope/tiny --seconds 0.01 --json /dev/full");
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_EQ(full.last_line(), "quire: /dev/full: cannot be written: No space left on device");
}

// The second case has no kernel: the first one's row is printed and on the disk all the same.
TEST_F(CommandFile, BenchKeepsTheRowsBeforeAFailure) {
  std::ofstream(path("a.json")) << R"([
    {"name": "first", "op": "quantize_fp8", "tags": ["tiny"], "rows": 2, "columns": 128},
    {"name": "second", "op": "flash_attention", "tags": ["tiny"], "softcap": -1,
     "lengths": {"new": [1], "cached": [0]}, "heads": 2,
     "cache": {"kv_heads": 2, "head_dim": 8, "page_size": 4}}])";
  const Finished run = quire("bench first second --seconds 0.01 --cases " + folder_.string() +
                             " --json " + path("rows.jsonl"));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.output.find("\nfirst "), std::string::npos) << run.output;
  std::ifstream file(path("rows.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(nlohmann::json::parse(line).at("case"), "first");
}

TEST_F(CommandFile, PipeInsteadOfAFileIsRefused) {
  ASSERT_EQ(mkfifo(path("a.json").c_str(), 0600), 0);
  const std::string refusal = "quire: " + path("a.json") + ": must be a regular file\n";
  EXPECT_EQ(quire("check --cases " + folder_.string()).output, refusal);
  EXPECT_EQ(quire("bench rope/tiny --against " + path("a.json")).output, refusal);
}

// On a terminal the case that is being run stands under the lines of those before it.
TEST(Command, ProgressIsShownOnATerminal) {
  for (const std::string command : {"check rope/tiny", "bench rope/tiny --seconds 0.01"}) {
    const std::optional<std::string> shown = on_terminal(command);
    if (!shown) GTEST_SKIP() << "no pseudo-terminal: " << std::strerror(errno);
    EXPECT_NE(shown->find("] 0/1 rope/tiny"), std::string::npos) << command;
    EXPECT_EQ(quire(command).output.find("] 0/1"), std::string::npos) << command;
  }
}

TEST(Command, BenchOfAFileThatIsNotThere) {
  const Finished run = quire("bench rope/tiny --against nowhere.jsonl");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.output, "quire: nowhere.jsonl: cannot be read: No such file or directory\n");
}

TEST(Command, InfoNamesMachineBackendsAndEveryOp) {
  const Finished run = quire("info");
  EXPECT_EQ(run.exit_code, 0);
  for (const char* word : {"cpu  ", "memory  ", "backends   reference", "flash_attention ",
                           "mla_indexer ", "sparse_mla ", "remap_sparse_indices "}) {
    EXPECT_NE(run.output.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(run.output.find(" none "), std::string::npos) << "a problem that no kernel takes";
}

TEST(Command, InfoSupportHasALinePerCase) {
  const Finished run = quire("info --support");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("flash_attention/gqa_16"), std::string::npos);
}

}  // namespace
