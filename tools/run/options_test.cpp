#include "tools/run/options.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tools/run/output.hpp"
#include "tools/run/spawn.hpp"

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
  for (const char* option : {"-n", "-t", "--bind", "--timeout", "--grace", "--env", "--tag"}) {
    EXPECT_NE(help.find(option), std::string::npos) << option;
  }
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

TEST(placement, gives_each_rank_cores_of_its_own_as_long_as_there_are_some) {
  bool wrapped = true;
  const auto one = place(1, 1, &wrapped);
  ASSERT_TRUE(one.ok()) << base::last_message();
  EXPECT_FALSE(wrapped);
  EXPECT_GE(CPU_COUNT(&(*one)[0]), 1);
  const auto many = place(1024, 4, &wrapped);
  ASSERT_TRUE(many.ok());
  EXPECT_TRUE(wrapped);
  for (const cpu_set_t& set : *many) EXPECT_GE(CPU_COUNT(&set), 1);
}

class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  void write(const std::string& text) {
    ASSERT_EQ(::write(writing.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string read() {
    std::string text(1U << 20, '\0');
    const ssize_t got = ::read(reading.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  base::Fd reading;
  base::Fd writing;
};

TEST(output, lines_are_passed_whole_with_their_tag) {
  Pipe from;
  Pipe to;
  Sink sink(to.writing.get());
  TaggedStream stream(std::move(from.reading), 12, &sink);
  from.write("one\ntw");
  stream.serve();
  EXPECT_EQ(to.read(), "[12] one\n");
  from.write("o\n\nthree");
  stream.serve();
  EXPECT_EQ(to.read(), "[12] two\n[12] \n");
  from.writing.reset();
  stream.serve();
  EXPECT_EQ(stream.fd(), -1);
  sink.flush();
  EXPECT_EQ(to.read(), "[12] three\n");
}

TEST(output, a_reader_that_stops_reading_blocks_nobody_and_loses_nothing) {
  Pipe from;
  Pipe to;
  Sink sink(to.writing.get());
  TaggedStream stream(std::move(from.reading), 0, &sink);
  const std::string line(999, 'x');
  std::size_t lines = 0;
  while (stream.readable_fd() >= 0) {
    ASSERT_LT(lines, 100'000U) << "what waits for the reader grows without limit";
    for (int i = 0; i < 50; ++i, ++lines) from.write(line + "\n");
    stream.serve();  // returns although nobody reads
  }
  from.writing.reset();
  std::size_t read = 0;
  while (sink.waiting() || stream.fd() >= 0) {
    read += to.read().size();
    stream.serve();
  }
  sink.flush();
  to.writing.reset();
  for (std::string more = to.read(); !more.empty(); more = to.read()) read += more.size();
  EXPECT_EQ(read, lines * (4 + line.size() + 1));
}

}  // namespace
}  // namespace heddle::tools::run
