#include "tofu/emulator/settings.hpp"

#include <gtest/gtest.h>

namespace tofu_emulator::settings_test {
namespace {

using Variables = std::map<std::string, std::string>;

void expect_rejected(const Variables& variables, const char* part) {
  EmulatorSettings settings;
  std::string problem;
  EXPECT_FALSE(parse_settings(variables, &settings, &problem)) << part;
  EXPECT_NE(problem.find(part), std::string::npos) << problem;
}

EmulatorSettings read(const Variables& variables) {
  EmulatorSettings settings;
  std::string problem;
  EXPECT_TRUE(parse_settings(variables, &settings, &problem)) << problem;
  return settings;
}

TEST(EmulatorSettings, WithoutVariablesThereIsAPlainWorldOfOneProcess) {
  const EmulatorSettings settings = read({{"HOME", "/"}, {"UTOFU_TAG", "not ours"}});
  EXPECT_EQ(settings.processes, 1U);
  EXPECT_EQ(settings.shape, (Shape{1, 1, 1, 1, 1, 1}));
  EXPECT_FALSE(settings.strict());
  EXPECT_EQ(settings.toq_depth, 2048U);
  EXPECT_EQ(settings.mrq_depth, 2048U);
  EXPECT_EQ(settings.rules, Rules::end_job);
}

TEST(EmulatorSettings, EveryVariableIsTaken) {
  const EmulatorSettings settings = read({{"UTOFU_EMU_FD", "7"},
                                          {"UTOFU_EMU_WORLD", "/tmp/w"},
                                          {"UTOFU_EMU_RANK", "5"},
                                          {"UTOFU_EMU_PROCESSES", "6"},
                                          {"UTOFU_EMU_SHAPE", "2x1x3"},
                                          {"UTOFU_EMU_PPN", "2"},
                                          {"UTOFU_EMU_SEED", "99"},
                                          {"UTOFU_EMU_MODE", "strict"},
                                          {"UTOFU_EMU_NUMBERING", "vendor"},
                                          {"UTOFU_EMU_RULES", "report"},
                                          {"UTOFU_EMU_TOQ", "128"},
                                          {"UTOFU_EMU_MRQ", "16"},
                                          {"UTOFU_EMU_STEP", "1"},
                                          {"UTOFU_EMU_ONE_THREAD", "1"},
                                          {"UTOFU_EMU_WATCHDOG", "5"},
                                          {"UTOFU_EMU_MODEL", "2"}});
  EXPECT_EQ(setting_variables().size(), 16U) << "a variable that this test does not know";
  EXPECT_EQ(settings.world_fd, 7);
  EXPECT_TRUE(settings.one_thread);
  EXPECT_TRUE(settings.spinners);
  EXPECT_EQ(settings.watchdog_s, 5U);
  EXPECT_EQ(settings.world_path, "/tmp/w");
  EXPECT_EQ(settings.process, 5U);
  EXPECT_EQ(settings.processes, 6U);
  EXPECT_EQ(settings.shape, (Shape{2, 1, 3, 1, 1, 1}));
  EXPECT_EQ(settings.per_node, 2U);
  EXPECT_EQ(settings.seed, 99U);
  EXPECT_TRUE(settings.strict());
  EXPECT_EQ(settings.numbering, Numbering::vendor);
  EXPECT_EQ(settings.rules, Rules::report);
  EXPECT_EQ(settings.toq_depth, 128U);
  EXPECT_EQ(settings.mrq_depth, 16U);
  EXPECT_TRUE(settings.step);
  EXPECT_TRUE(settings.model);
}

TEST(EmulatorSettings, StrictQueuesAreNoSmallerThanTheHardwares) {
  const EmulatorSettings settings = read({{"UTOFU_EMU_MODE", "strict"}});
  EXPECT_EQ(settings.toq_depth, 2048U);
  EXPECT_EQ(settings.mrq_depth, 2048U);
}

TEST(EmulatorSettings, NumbersAreTheVendorsUnlessStrict) {
  EXPECT_EQ(read({}).numbering, Numbering::vendor);
  EXPECT_EQ(read({{"UTOFU_EMU_MODE", "strict"}}).numbering, Numbering::random);
  EXPECT_EQ(read({{"UTOFU_EMU_NUMBERING", "random"}}).numbering, Numbering::random);
  EXPECT_EQ(read({{"UTOFU_EMU_NUMBERING", "vendor"}, {"UTOFU_EMU_MODE", "strict"}}).numbering, Numbering::vendor);
  expect_rejected({{"UTOFU_EMU_NUMBERING", "mine"}}, "vendor or random");
}

TEST(EmulatorSettings, AnMpisLauncherSaysWhoThisIsWhereAWorldIsNamed) {
  const std::pair<const char*, const char*> launchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : launchers) {
    const EmulatorSettings settings = read({{"UTOFU_EMU_WORLD", "/tmp/w"}, {rank, "3"}, {size, "4"}});
    EXPECT_EQ(settings.process, 3U);
    EXPECT_EQ(settings.processes, 4U);
    EXPECT_EQ(read({{rank, "3"}, {size, "4"}}).processes, 1U) << "nobody has said that they are to meet here";
    const EmulatorSettings said = read({{"UTOFU_EMU_WORLD", "/tmp/w"},
                                        {"UTOFU_EMU_RANK", "1"},
                                        {"UTOFU_EMU_PROCESSES", "2"},
                                        {rank, "3"},
                                        {size, "4"}});
    EXPECT_EQ(said.process, 1U);
    expect_rejected({{"UTOFU_EMU_WORLD", "/tmp/w"}, {rank, "3"}, {size, "1000"}}, "start fewer");
  }
}

TEST(EmulatorSettings, WhatIsWrongIsNamed) {
  expect_rejected({{"UTOFU_EMU_MODES", "strict"}}, "UTOFU_EMU_MODES");
  expect_rejected({{"UTOFU_EMU_MODE", "harsh"}}, "plain or strict");
  expect_rejected({{"UTOFU_EMU_RULES", ""}}, "abort or report");
  expect_rejected({{"UTOFU_EMU_TOQ", "100"}}, "power of two");
  expect_rejected({{"UTOFU_EMU_TOQ", "4"}}, "power of two");
  expect_rejected({{"UTOFU_EMU_MRQ", "4194304"}}, "power of two");
  expect_rejected({{"UTOFU_EMU_STEP", "yes"}}, "0 or 1");
  expect_rejected({{"UTOFU_EMU_PROCESSES", "257"}}, "1-256");
  expect_rejected({{"UTOFU_EMU_PROCESSES", "-1"}}, "1-256");
  expect_rejected({{"UTOFU_EMU_PPN", "0"}}, "1-48");
  expect_rejected({{"UTOFU_EMU_SEED", "18446744073709551616"}}, "whole number");
  expect_rejected({{"UTOFU_EMU_WORLD", ""}}, "a path");
  for (const char* shape : {"", "x", "2x", "2x2x2x2x3x2x1", "33", "0", "1x1x1x3", "1x1x1x2x4", "2X2", "2x2 "}) {
    expect_rejected({{"UTOFU_EMU_SHAPE", shape}}, "XxYxZxAxBxC");
  }
}

TEST(EmulatorSettings, WhatDoesNotFitTogetherIsNamed) {
  expect_rejected({{"UTOFU_EMU_RANK", "2"}, {"UTOFU_EMU_PROCESSES", "2"}}, "UTOFU_EMU_RANK=2");
  expect_rejected({{"UTOFU_EMU_SHAPE", "2x1x1"}, {"UTOFU_EMU_PROCESSES", "5"}, {"UTOFU_EMU_PPN", "2"}}, "3 are needed");
}

TEST(EmulatorSettings, TheSmallestShapeHoldsTheNodes) {
  for (std::uint32_t nodes = 1; nodes <= kMaxProcesses; ++nodes) {
    const Shape shape = smallest_shape(nodes);
    std::uint32_t has = 1;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      EXPECT_LE(shape.at(axis), kLargestShape.at(axis));
      has *= shape.at(axis);
    }
    EXPECT_GE(has, nodes);
    EXPECT_LE(has, nodes < 12 ? nodes * 2 : nodes * 2 + 12);
  }
}

}  // namespace
}  // namespace tofu_emulator::settings_test
