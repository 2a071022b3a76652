#include "harness/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heddle::bench::harness::bench_options_test {
namespace {

std::optional<BenchOptions> parse(std::vector<std::string> words, std::string* error) {
  words.insert(words.begin(), "bench");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), error);
}

TEST(BenchOptions, EverythingIsUnderstood) {
  std::string error;
  const auto options = parse({"rate", "gups", "--op", "put,am", "--size=8,4K,1M", "--threads", "1,4", "--repeat", "5",
                              "--memory", "registered", "--total-words", "1M", "--peers", "--quick", "--json=-"},
                             &error);
  ASSERT_TRUE(options) << error;
  EXPECT_EQ(options->names, (std::vector<std::string>{"rate", "gups"}));
  EXPECT_EQ(options->ops, (std::vector<std::string>{"put", "am"}));
  EXPECT_EQ(options->sizes, (std::vector<std::uint64_t>{8, 4096, 1048576}));
  EXPECT_EQ(options->threads, (std::vector<std::uint32_t>{1, 4}));
  EXPECT_EQ(options->total_words, 1048576U);
  EXPECT_EQ(options->json, "-");
  EXPECT_TRUE(options->peers && options->quick);
}

TEST(BenchOptions, ParticipantsGetTheSame) {
  const std::vector<std::vector<std::string>> all = {
      {"rate", "--op", "put", "--size", "8", "--threads", "2", "--memory", "allocated", "--total-words", "2M",
       "--sharing", "shared", "--quick", "--channel", "/proc/1/fd/3", "--cores", "0,1"},
      {"programs", "--busy", "2", "--op", "latency,rpc", "--memory", "malloc", "--switches"},
      {"barrier", "scan", "--form", "blocking,persistent", "--algorithm", "scan.linear", "--memory", "own", "--overlap",
       "no", "--max", "1K"}};
  for (const auto& words : all) {
    std::string error;
    const auto options = parse(words, &error);
    ASSERT_TRUE(options) << error;
    const auto told = participant_arguments(*options, 3);
    const auto again = parse(told, &error);
    ASSERT_TRUE(again) << error;
    EXPECT_EQ(participant_arguments(*again, 3), told);
    EXPECT_EQ(again->repeat, 3U);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--max") break;  // the sizes up to it
      EXPECT_TRUE(contains(told, words[i]) || words[i] == "2M") << words[i];
    }
    EXPECT_EQ(again->sizes, options->sizes);
  }
}

TEST(BenchOptions, ARepeatBesideBusyProcessesSeesSeveralTimeSlices) {
  std::string error;
  EXPECT_GE(parse({"programs", "--busy", "2"}, &error)->target_ns, 100'000'000U);
}

TEST(BenchOptions, CollectivesHaveSizesByPowersOfFour) {
  std::string error;
  EXPECT_EQ(parse({"broadcast", "--max", "16K"}, &error)->sizes,
            (std::vector<std::uint64_t>{8, 64, 1024, 4096, 16384}));
  EXPECT_EQ(parse({"tune", "--ranks", "2,4"}, &error)->names, kCollectiveNames);
}

TEST(BenchOptions, HelpNamesWhatThereIs) {
  const std::string help = kUsage;
  for (const auto* names : {&kUsualNames, &kOtherNames, &kProgramNames, &kCollectiveNames, &kCollectiveForms}) {
    for (const std::string& name : *names) EXPECT_NE(help.find(name), std::string::npos) << name;
  }
}

TEST(BenchOptions, MeasurementsOfPapersRunOnlyByName) {
  std::string error;
  const auto usual = parse({}, &error);
  const auto named = parse({"overhead", "fairness", "duplex", "convolution", "--sharing", "exclusive,mutex"}, &error);
  ASSERT_TRUE(usual && named) << error;
  EXPECT_TRUE(wants_bench(*usual, "rate"));
  EXPECT_FALSE(wants_bench(*named, "rate"));
  EXPECT_FALSE(wants_bench(*usual, "duplex"));
  EXPECT_TRUE(wants_bench(*named, "duplex"));
  EXPECT_TRUE(wants_mode(*usual, "offload") && !wants_mode(*usual, "mutex"))
      << "the baseline only where it is asked for";
  EXPECT_TRUE(wants_mode(*named, "mutex") && !wants_mode(*named, "offload"));
  EXPECT_TRUE(wants_op(*usual, "put"));
  EXPECT_EQ(threads_or(*usual, {3}), std::vector<std::uint32_t>{3});
}

TEST(BenchOptions, WhatIsWrongIsNamed) {
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
      {{"--sizes=8"}, "did you mean --size?"},
      {{"--zzz"}, "unknown option --zzz"},
      {{"pingpogn"}, "did you mean pingpong?"},
      {{"allreduec"}, "did you mean allreduce?"},
      {{"rate", "barrier"}, "heddle bench barrier"},
      {{"barrier", "rate"}, "heddle bench barrier"},
      {{"--op", "ptu"}, "did you mean put?"},
      {{"rate", "--busy", "2"}, "heddle bench programs --busy 2"},
      {{"rate", "--memory", "malloc"}, "for programs alone"},
      {{"programs", "--memory", "adopted"}, "--memory adopted"},
      {{"rate", "--memory", "own"}, "--memory own"},
      {{"barrier", "--memory", "registered"}, "--memory registered"},
      {{"barrier", "--threads", "2"}, "--threads is not for collectives"},
      {{"rate", "--ranks", "2"}, "--ranks is for collectives"},
      {{"barrier", "--output", "x"}, "heddle bench tune --output"},
      {{"tune", "--form", "blocking"}, "--form is not for tune"},
      {{"scan", "--algorithm", "barrier.dissemination"}, "none of the operations"},
      {{"scan", "--algorithm", "scan.linear", "--form", "blocking"}, "for the persistent form"},
  };
  for (const auto& one : cases) {
    std::string error;
    EXPECT_FALSE(parse(one.words, &error)) << one.words[0];
    EXPECT_NE(error.find(one.named), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace heddle::bench::harness::bench_options_test
