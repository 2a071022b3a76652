#include "harness/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heddle::bench::harness {
namespace {

std::optional<Options> parse(std::vector<std::string> words, std::string* error) {
  words.insert(words.begin(), "bench");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), error);
}

TEST(Options, EverythingIsUnderstood) {
  std::string error;
  const auto options =
      parse({"rate", "gups", "--op", "put,am", "--size", "8,4K,1M", "--threads", "1,4", "--repeat", "5", "--memory",
             "registered", "--total-words", "1M", "--peers", "--quick", "--json", "x.json"},
            &error);
  ASSERT_TRUE(options) << error;
  EXPECT_EQ(options->names, (std::vector<std::string>{"rate", "gups"}));
  EXPECT_EQ(options->ops, (std::vector<std::string>{"put", "am"}));
  EXPECT_EQ(options->sizes, (std::vector<std::uint64_t>{8, 4096, 1048576}));
  EXPECT_EQ(options->threads, (std::vector<std::uint32_t>{1, 4}));
  EXPECT_EQ(options->total_words, 1048576U);
  EXPECT_TRUE(options->peers && options->quick);
}

TEST(Options, ParticipantsGetTheSame) {
  std::string error;
  auto options = parse({"rate", "--op", "put", "--size", "8", "--threads", "2", "--memory", "allocated",
                        "--total-words", "2M", "--quick", "--channel", "/proc/1/fd/3", "--cores", "0,1"},
                       &error);
  ASSERT_TRUE(options) << error;
  const auto again = parse(participant_arguments(*options, 3), &error);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(again->names, options->names);
  EXPECT_EQ(again->ops, options->ops);
  EXPECT_EQ(again->sizes, options->sizes);
  EXPECT_EQ(again->threads, options->threads);
  EXPECT_EQ(again->memory, options->memory);
  EXPECT_EQ(again->total_words, options->total_words);
  EXPECT_EQ(again->quick, options->quick);
  EXPECT_EQ(again->channel, options->channel);
  EXPECT_EQ(again->cores, options->cores);
  EXPECT_EQ(again->target_ns, options->target_ns);
  EXPECT_EQ(again->repeat, 3U);
}

TEST(Options, OnlyProgramsRunBesideBusyProcesses) {
  std::string error;
  const auto busy = parse({"programs", "--busy", "2", "--op", "latency,rpc"}, &error);
  ASSERT_TRUE(busy) << error;
  EXPECT_EQ(busy->busy, 2U);
  EXPECT_GE(busy->target_ns, 100'000'000U) << "shorter than the time slices";
  const auto again = parse(participant_arguments(*busy, 1), &error);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(again->busy, 2U);
  EXPECT_EQ(again->ops, busy->ops);
  EXPECT_FALSE(parse({"rate", "--busy", "2"}, &error));
  EXPECT_NE(error.find("heddle bench programs --busy 2"), std::string::npos) << error;
}

TEST(Options, ProgramsHaveBuffersOfPagesOrAsMallocGivesThem) {
  std::string error;
  const auto malloc = parse({"programs", "--memory", "malloc"}, &error);
  ASSERT_TRUE(malloc) << error;
  const auto again = parse(participant_arguments(*malloc, 1), &error);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(again->memory, "malloc");
  EXPECT_FALSE(parse({"rate", "--memory", "malloc"}, &error));
  EXPECT_NE(error.find("for programs alone"), std::string::npos) << error;
  EXPECT_FALSE(parse({"programs", "--memory", "adopted"}, &error));
  EXPECT_NE(error.find("--memory adopted"), std::string::npos) << error;
}

TEST(Options, HelpNamesEveryProgram) {
  const std::string help = kUsage;
  for (const std::string& name : kProgramNames) EXPECT_NE(help.find(name), std::string::npos) << name;
}

TEST(Options, MeasurementsOfPapersRunOnlyByName) {
  std::string error;
  const auto usual = parse({}, &error);
  const auto named = parse({"overhead", "fairness", "duplex", "convolution", "--sharing", "exclusive,mutex"}, &error);
  ASSERT_TRUE(usual && named) << error;
  EXPECT_TRUE(wants_bench(*usual, "rate"));
  EXPECT_FALSE(wants_bench(*named, "rate"));
  for (const char* bench : {"overhead", "fairness", "duplex", "convolution"}) {
    EXPECT_FALSE(wants_bench(*usual, bench)) << bench;
    EXPECT_TRUE(wants_bench(*named, bench)) << bench;
  }
  EXPECT_TRUE(wants_mode(*usual, "offload") && !wants_mode(*usual, "mutex"))
      << "the baseline only where it is asked for";
  EXPECT_TRUE(wants_mode(*named, "mutex") && !wants_mode(*named, "offload"));
  EXPECT_TRUE(wants_op(*usual, "put"));
  EXPECT_EQ(threads_or(*usual, {3}), std::vector<std::uint32_t>{3});
}

TEST(Options, ValuesMayFollowAnEqualsSign) {
  std::string error;
  const auto options = parse({"rate", "--size=8,4K", "--json=-", "--threads=2", "--quick"}, &error);
  ASSERT_TRUE(options) << error;
  EXPECT_EQ(options->sizes, (std::vector<std::uint64_t>{8, 4096}));
  EXPECT_EQ(options->json, "-");
  EXPECT_EQ(options->threads, std::vector<std::uint32_t>{2});
  EXPECT_TRUE(options->quick);
}

TEST(Options, WhatIsWrongIsNamed) {
  const struct {
    std::vector<std::string> words;
    const char* named;
  } cases[] = {
      {{"speed"}, "\"speed\""},
      {{"--fast"}, "--fast"},
      {{"--op", "throw"}, "throw"},
      {{"--op"}, "--op"},
      {{"--size", "7"}, "7"},
      {{"--size", "8,x"}, "x"},
      {{"--size", "1G"}, "1G"},
      {{"--threads", "0"}, "0"},
      {{"--threads", "65"}, "65"},
      {{"--time", "0"}, "--time"},
      {{"--repeat", "none"}, "--repeat"},
      {{"--busy", "-1"}, "--busy"},
      {{"--memory", "shared"}, "--memory"},
      {{"--total-words", "3"}, "--total-words"},
      {{"--json"}, "--json"},
      {{"--json", "--peers"}, "--json needs a value"},
      {{"--json="}, "--json needs a value"},
      {{"--quick=yes"}, "--quick takes no value"},
      {{"--peer"}, "did you mean --peers?"},
      {{"--sizes", "8"}, "did you mean --size?"},
      {{"--sizes=8"}, "did you mean --size?"},
      {{"--zzz"}, "unknown option --zzz"},
      {{"pingpogn"}, "did you mean pingpong?"},
      {{"allreduec"}, "did you mean allreduce?"},
      {{"rate", "barrier"}, "heddle bench barrier"},
      {{"--op", "ptu"}, "did you mean put?"},
  };
  for (const auto& one : cases) {
    std::string error;
    EXPECT_FALSE(parse(one.words, &error)) << one.words[0];
    EXPECT_NE(error.find(one.named), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace heddle::bench::harness
