#include "tools/run/options.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

namespace heddle::tools::run::options_test {
namespace {

base::Result<RunOptions> parsed(std::vector<std::string> words, std::string* answer = nullptr,
                                const Names& names = kRunNames) {
  words.insert(words.begin(), "run");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::string unused;
  return parse(static_cast<int>(arguments.size()), arguments.data(), names, answer != nullptr ? answer : &unused);
}

TEST(options, have_defaults) {
  const auto options = parsed({"app"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->ranks, 1U);
  EXPECT_EQ(options->threads, 0U);
  EXPECT_FALSE(options->bind_cores);
  EXPECT_FALSE(options->tag);
  EXPECT_EQ(options->timeout_ns, 0U);
  EXPECT_EQ(options->grace_ns, 5'000'000'000U);
  EXPECT_EQ(options->command, std::vector<std::string>{"app"});
}

TEST(options, are_all_read_and_end_at_the_program) {
  const auto options =
      parsed({"-n",  "7",     "-t",    "3",     "--bind", "core", "--timeout", "1.5",   "--grace",   "0",  "--env",
              "A=1", "--env", "B=x=y", "--tag", "./app",  "-n",   "9",         "--tag", "--unknown", "--", "z"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->ranks, 7U);
  EXPECT_EQ(options->threads, 3U);
  EXPECT_TRUE(options->bind_cores);
  EXPECT_TRUE(options->tag);
  EXPECT_EQ(options->timeout_ns, 1'500'000'000U);
  EXPECT_EQ(options->grace_ns, 0U);
  const std::vector<std::pair<std::string, std::string>> environment = {{"A", "1"}, {"B", "x=y"}};
  EXPECT_EQ(options->environment, environment);
  EXPECT_EQ(options->command, (std::vector<std::string>{"./app", "-n", "9", "--tag", "--unknown", "--", "z"}));
}

TEST(options, an_emulated_machine_has_room_for_the_ranks) {
  auto options = parsed({"-n", "4", "--utofu", "2x1x1", "app"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->utofu.shape, "2x1x1");
  EXPECT_EQ(options->utofu.per_node, 2U);
  options = parsed({"-n", "4", "--utofu", "2x3x1x2x3x2:4", "app"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->utofu.shape, "2x3x1x2x3x2");
  EXPECT_EQ(options->utofu.per_node, 4U);
  EXPECT_TRUE(parsed({"app"})->utofu.shape.empty());
  for (const char* bad : {"2x", "x2", "0", "33", "1x1x1x3", "1x1x1x1x1x1x1", "2x1:0", "2x1:49", "2x1:", "1:3", "-1"})
    EXPECT_FALSE(parsed({"-n", "4", "--utofu", bad, "app"}).ok()) << bad;
  EXPECT_FALSE(parsed({"-n", "257", "--utofu", "32x32", "app"}).ok());
  EXPECT_FALSE(parsed({"-n", "49", "--utofu", "1", "app"}).ok());
}

TEST(options, calls_of_a_traced_job_have_names_unless_the_user_says_otherwise) {
  auto options = parsed({"--trace", "file", "app"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_TRUE(options->trace_calls);
  EXPECT_EQ(options->trace.front(), '/');
  EXPECT_FALSE(parsed({"--trace", "file", "--trace-calls", "no", "app"})->trace_calls);
  EXPECT_FALSE(parsed({"--trace", "file", "--trace-calls", "perhaps", "app"}).ok());
}

TEST(options, a_program_may_follow_two_dashes) {
  const auto options = parsed({"-n", "2", "--", "-app", "-x"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->command, (std::vector<std::string>{"-app", "-x"}));
}

TEST(options, help_names_every_option) {
  std::string help;
  ASSERT_TRUE(parsed({"--help"}, &help).ok());
  for (const char* word :
       {"-n,", "-np,", "--np", "--version", "-t", "--bind", "--timeout", "--grace", "--env", "--tag", "--help",
        "HEDDLE_LOCAL_RANK", "HEDDLE_LOCAL_SIZE", "Standard input", "second Ctrl-C", "Exit code"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(help.find("usage"), help.rfind("usage"));
  std::string same;
  ASSERT_TRUE(parsed({"-help"}, &same).ok());  // as other launchers know it
  EXPECT_EQ(same, help);
}

TEST(options, np_is_n_where_an_option_may_stand) {
  auto options = parsed({"--tag", "-t", "2", "-np", "4", "app", "-np", "5"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->ranks, 4U);
  EXPECT_EQ(options->command, (std::vector<std::string>{"app", "-np", "5"}));
  options = parsed({"-n", "3", "--", "-np", "6"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->ranks, 3U);
  EXPECT_EQ(options->command, (std::vector<std::string>{"-np", "6"}));
  EXPECT_EQ(parsed({"-np", "x", "app"}).status(), HEDDLE_ERR_ARGUMENT);
}

TEST(options, np_has_all_spellings) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"-n", "4", "app"},
                                                                                     {"-n4", "app"},
                                                                                     {"-np", "4", "app"},
                                                                                     {"--np", "4", "app"},
                                                                                     {"--np=4", "app"},
                                                                                     {"-n=4", "app"},
                                                                                     {"-np=4", "app"}}) {
    const auto options = parsed(words);
    ASSERT_TRUE(options.ok()) << testing::PrintToString(words) << base::last_message();
    EXPECT_EQ(options->ranks, 4U) << testing::PrintToString(words);
    EXPECT_EQ(options->command, std::vector<std::string>{"app"}) << testing::PrintToString(words);
  }
}

TEST(options, the_version_is_told) {
  std::string answer;
  ASSERT_TRUE(parsed({"--version"}, &answer).ok());
  EXPECT_EQ(answer.find("heddle run "), 0U) << answer;
  ASSERT_TRUE(parsed({"-n", "2", "--version"}, &answer, kOshrunNames).ok());
  EXPECT_EQ(answer.find("oshrun of Heddle "), 0U) << answer;
  EXPECT_EQ(answer.back(), '\n');
}

TEST(options, help_is_in_the_words_of_the_command) {
  std::string help;
  ASSERT_TRUE(parsed({"--help"}, &help, kOshrunNames).ok());
  for (const char* word : {"heddle run", "rank", "heddle_context", "leaving the job"}) {
    EXPECT_EQ(help.find(word), std::string::npos) << word;
  }
  for (const char* word : {"usage: oshrun", "PE 0", "shmem_global_exit", "shmem_finalize", "HEDDLE_LOCAL_RANK"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

TEST(options, options_of_other_launchers_are_explained) {
  const std::vector<std::pair<const char*, const char*>> cases = {{"-x", "--env NAME=VALUE"},
                                                                  {"--oversubscribe", "allowed without it"},
                                                                  {"--hostfile", "on this machine"},
                                                                  {"--bind-to", "--bind core"},
                                                                  {"--tag-output", "--tag puts"},
                                                                  {"--mca", "heddle info"},
                                                                  {"-V", "--version"},
                                                                  {"-N", "-n N"},
                                                                  {"--host=a", "on this machine"},
                                                                  {"-hosts", "on this machine"},
                                                                  {"-host", "on this machine"},
                                                                  {"-hello", "-hello; `oshrun --"},
                                                                  {"--bogus", "--bogus; `oshrun --"}};
  for (const auto& [option, said] : cases) {
    EXPECT_EQ(parsed({option, "2", "app"}, nullptr, kOshrunNames).status(), HEDDLE_ERR_ARGUMENT);
    const std::string message = base::last_message();
    EXPECT_EQ(message.find("unknown option " + std::string(option)), 0U) << message;
    EXPECT_NE(message.find(said), std::string::npos) << message;
    EXPECT_NE(message.find("`oshrun --help` lists the options"), std::string::npos) << message;
  }
}

TEST(options, a_misspelt_one_is_recognised) {
  const std::vector<std::pair<const char*, const char*>> cases = {{"--timout", "did you mean --timeout?"},
                                                                  {"--timout=3", "did you mean --timeout?"},
                                                                  {"--utof", "did you mean --utofu?"},
                                                                  {"--quux", "--quux; `heddle run --help`"}};
  for (const auto& [option, said] : cases) {
    EXPECT_EQ(parsed({option, "2", "app"}).status(), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(base::last_message()).find(said), std::string::npos) << base::last_message();
  }
  const auto options = parsed({"-n=2", "-t=3", "app", "-n=5"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->ranks, 2U);
  EXPECT_EQ(options->threads, 3U);
  EXPECT_EQ(options->command, (std::vector<std::string>{"app", "-n=5"}));
}

TEST(options, a_lone_colon_is_rejected_unless_it_is_said_to_be_an_argument) {
  EXPECT_EQ(parsed({"-n", "1", "a", ":", "-n", "2", "b"}).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_NE(std::string(base::last_message()).find("a lone :"), std::string::npos) << base::last_message();
  EXPECT_TRUE(parsed({"a", "::", "b:c", "x: y"}).ok());
  const auto options = parsed({"-n", "2", "--", "a", ":", "b"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->command, (std::vector<std::string>{"a", ":", "b"}));
}

TEST(options, one_that_is_given_twice_is_named) {
  EXPECT_EQ(parsed({"-n", "2", "-n", "3", "app"}).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(std::string(base::last_message()), "--np is given more than once; `heddle run --help` lists the options");
  EXPECT_EQ(parsed({"--timeout", "2", "--timeout=3", "app"}).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(std::string(base::last_message()).find("--timeout is given more than once; "), 0U);
  const auto options = parsed({"--env", "A=1", "--env", "B=2", "app"});
  EXPECT_TRUE(options.ok()) << base::last_message();
}

TEST(options, a_missing_or_empty_value_is_named) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--trace"}, "--trace needs a FILE; `heddle run --help`"},
      {{"--trace=", "./app"}, "--trace needs a FILE, and its value is empty; "},
      {{"--trace", "", "./app"}, "--trace needs a FILE, and its value is empty; "},
      {{"-n", "2", "--timeout"}, "--timeout needs a time in seconds; "},
      {{"-np"}, "-n needs a number of processes; "},
      {{"-n=", "app"}, "-n needs a number of processes, and its value is empty; "},
      {{"--env=", "app"}, "--env needs NAME=VALUE, and its value is empty; "}};
  for (const auto& [words, said] : cases) {
    EXPECT_EQ(parsed(words).status(), HEDDLE_ERR_ARGUMENT) << testing::PrintToString(words);
    EXPECT_EQ(std::string(base::last_message()).find(said), 0U) << base::last_message();
  }
  EXPECT_TRUE(parsed({"app", "--trace"}).ok()) << base::last_message();
  EXPECT_TRUE(parsed({"app", "--trace="}).ok()) << base::last_message();
}

TEST(options, a_trace_that_cannot_be_written_is_rejected) {
  std::string folder = (std::filesystem::temp_directory_path() / "heddle-options-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {folder, " is a directory; name a file in it, as " + folder + "/job.pftrace"},
      {folder + "/no/file", ": there is no folder " + folder + "/no; make it"},
      {"/dev/null", " is there already and is no ordinary file"},
      {"/proc/file", ": no file can be made in /proc; "}};
  for (const auto& [file, said] : cases) {
    // root may do what it likes
    if (file == "/proc/file" && ::access("/proc", W_OK) == 0) continue;
    EXPECT_EQ(parsed({"--trace", file, "app"}).status(), HEDDLE_ERR_ARGUMENT) << file;
    EXPECT_EQ(std::string(base::last_message()).find("--trace " + file + said), 0U) << base::last_message();
  }
  const auto options = parsed({"--trace", folder + "/file", "app"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->trace, folder + "/file");
  std::filesystem::remove_all(folder);
}

TEST(options, nonsense_is_rejected) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{},
                                                                                     {"-n"},
                                                                                     {"-n", "1x", "app"},
                                                                                     {"-n", "-1", "app"},
                                                                                     {"-n", "1025", "app"},
                                                                                     {"-n", "", "app"},
                                                                                     {"-n=", "app"},
                                                                                     {"-n=x", "app"},
                                                                                     {"--timeout", "1e30", "app"},
                                                                                     {"--timeout", "inf", "app"},
                                                                                     {"--timeout", "5s", "app"},
                                                                                     {"--grace", "-1", "app"},
                                                                                     {"--nonsense"},
                                                                                     {"--"}}) {
    EXPECT_EQ(parsed(words).status(), HEDDLE_ERR_ARGUMENT) << testing::PrintToString(words);
  }
}

}  // namespace
}  // namespace heddle::tools::run::options_test
