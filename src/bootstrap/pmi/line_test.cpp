#include "bootstrap/pmi/pmi.hpp"

#include <gtest/gtest.h>

#include <random>

namespace heddle::bootstrap::pmi::line_test {
namespace {

TEST(pmi_line, fields) {
  const auto line = Line::parse("cmd=get_result rc=0 msg=success value=(vector,(0,1,4)) empty= rc=7");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->command(), "get_result");
  EXPECT_EQ(line->number("rc"), 0);
  EXPECT_EQ(line->field("value"), "(vector,(0,1,4))");
  EXPECT_EQ(line->field("empty"), "");
  EXPECT_EQ(line->number("empty"), std::nullopt);
  EXPECT_EQ(line->number("msg"), std::nullopt);
  EXPECT_EQ(line->field("none"), std::nullopt);
}

TEST(pmi_line, words_of_messages_are_passed_over) {
  const auto line = Line::parse("cmd=put_result  rc=-1 msg=no room left value=a=b");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->number("rc"), -1);
  EXPECT_EQ(line->field("msg"), "no");
  EXPECT_EQ(line->field("value"), "a=b");
}

TEST(pmi_line, what_is_no_line) {
  EXPECT_FALSE(Line::parse("").has_value());
  EXPECT_FALSE(Line::parse("rc=0 cmd=init").has_value());
  EXPECT_FALSE(Line::parse("init").has_value());
  EXPECT_FALSE(Line::parse(std::string("cmd=init\0rc=0", 13)).has_value());
  EXPECT_FALSE(Line::parse("cmd=init\trc=0").has_value());
  EXPECT_FALSE(Line::parse("cmd=init \xff").has_value());
  EXPECT_TRUE(Line::parse("cmd=" + std::string(kMaxLine - 4, 'x')).has_value());
  EXPECT_FALSE(Line::parse("cmd=" + std::string(kMaxLine - 3, 'x')).has_value());
}

TEST(pmi_line, garbage_does_no_harm) {
  std::mt19937 random(11);
  for (int i = 0; i < 50'000; ++i) {
    std::string text = "cmd=get_result rc=0 msg=success value=(vector,(0,1,4))";
    for (int changes = 0; changes < 4; ++changes) text[random() % text.size()] = static_cast<char>(' ' + random() % 95);
    const auto line = Line::parse(text);
    if (!line) continue;
    static_cast<void>(line->number("rc"));
    static_cast<void>(maps_to_one_node(line->field("value").value_or("")));
  }
}

TEST(pmi_line, mappings) {
  EXPECT_TRUE(maps_to_one_node("(vector,(0,1,4))"));
  EXPECT_TRUE(maps_to_one_node("(vector,(0,1,4),(0,1,2))"));
  for (const char* text :
       {"", "(vector,", "(vector,)", "(vector,(0,1,4)", "(vector,(0,2,4))", "(vector,(0,1,2),(1,1,2))",
        "(vector,(1,1,4))", "(vector,(0,1))", "(vector,(a,1,4))", "(matrix,(0,1,4))", "(vector,(0,1,4))x"}) {
    EXPECT_FALSE(maps_to_one_node(text)) << text;
  }
}

}  // namespace
}  // namespace heddle::bootstrap::pmi::line_test
