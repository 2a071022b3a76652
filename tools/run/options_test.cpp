#include "tools/run/options.hpp"

#include <gtest/gtest.h>

#include <array>

namespace heddle::tools::run {
namespace {

base::Result<Options> parsed(std::vector<std::string> words, std::string* help = nullptr) {
  words.insert(words.begin(), "run");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::string unused;
  return parse(static_cast<int>(arguments.size()), arguments.data(), help != nullptr ? help : &unused);
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

TEST(options, a_program_may_follow_two_dashes) {
  const auto options = parsed({"-n", "2", "--", "-app", "-x"});
  ASSERT_TRUE(options.ok()) << base::last_message();
  EXPECT_EQ(options->command, (std::vector<std::string>{"-app", "-x"}));
}

TEST(options, help_names_every_option) {
  std::string help;
  ASSERT_TRUE(parsed({"--help"}, &help).ok());
  for (const char* word : {"-n,", "-np", "-t", "--bind", "--timeout", "--grace", "--env", "--tag", "--help",
                           "HEDDLE_LOCAL_RANK", "HEDDLE_LOCAL_SIZE", "Standard input", "second Ctrl-C", "Exit code"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(help.find("usage"), help.rfind("usage"));
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

TEST(options, nonsense_is_refused) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{},
                                                                                     {"-n"},
                                                                                     {"-n", "1x", "app"},
                                                                                     {"-n", "-1", "app"},
                                                                                     {"-n", "1025", "app"},
                                                                                     {"-n", "", "app"},
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
}  // namespace heddle::tools::run
