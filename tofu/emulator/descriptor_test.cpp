#include "tofu/emulator/descriptor.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.hpp"

namespace tofu_emulator::descriptor_test {
namespace {

EmulatorSettings world() {
  EmulatorSettings settings;
  settings.shape = {2, 1, 1, 2, 3, 2};
  settings.processes = 24;
  return settings;
}

class DescriptorTest : public ::testing::Test {
 protected:
  Machine machine_{world()};
  Encoder encoder_{&machine_, false};
  utofu_vcq_id_t id_ = machine_.vcq_id({3, 4, 5, 6, kNoPath});
  Target target_{id_, 0x123456789ABCDEF0, 0xA5, 0};
  Slot slots_[4]{};

  CqCommand decoded() {
    CqCommand command;
    EXPECT_TRUE(decode(machine_, slots_[0], slots_[1], &command));
    EXPECT_EQ(command.slots, slots_of(slots_[0]));
    EXPECT_TRUE(whole_commands(slots_, command.slots));
    return command;
  }
};

TEST_F(DescriptorTest, AnIdWithPathIsRawAndThePathIsTheCommands) {
  VcqPlace place{3, 4, 5, 6, 9};
  target_.vcq_id = machine_.vcq_id(place);
  ASSERT_EQ(encode_piggyback8(encoder_, target_, 1, 8, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().remote, id_);
  EXPECT_EQ(decoded().path, 9);
  target_.flags = UTOFU_ONESIDED_FLAG_PATH(4);
  ASSERT_EQ(encode_piggyback8(encoder_, target_, 1, 8, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().path, 4) << "the command's own";
  target_.flags = UTOFU_ONESIDED_FLAG_PATH(13);
  EXPECT_EQ(encode_piggyback8(encoder_, target_, 1, 8, slots_), UTOFU_ERR_INVALID_PATH_ID);
}

TEST_F(DescriptorTest, EveryFlagOfATransferComesThrough) {
  target_.flags = UTOFU_ONESIDED_FLAG_SPS(11) | UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
                  UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_PADDING;
  ASSERT_EQ(encode_transfer(coding::kPut, encoder_, target_, 0xFEDCBA9876543210, {kMaxLength}, {1024, 200}, slots_),
            UTOFU_SUCCESS);
  const CqCommand command = decoded();
  EXPECT_EQ(command.opcode, Opcode::put);
  EXPECT_EQ(command.flags, target_.flags & 0xFFFFU);
  EXPECT_EQ(command.sps, 11);
  EXPECT_EQ(command.path, kNoPath);
  EXPECT_EQ(command.edata, 0xA5);
  EXPECT_EQ(command.length, kMaxLength);
  EXPECT_EQ(command.mtu, 1024);
  EXPECT_EQ(command.gap, 200);
  EXPECT_EQ(command.remote, id_);
  EXPECT_EQ(command.remote_stadd, target_.stadd);
  EXPECT_EQ(command.local_stadd, 0xFEDCBA9876543210);
  EXPECT_EQ(command.error, UTOFU_SUCCESS);
}

TEST_F(DescriptorTest, APlainTransferIsTheSameWithoutAPace) {
  for (const coding::Code code : {coding::kPut, coding::kGet}) {
    ASSERT_EQ(encode_plain_transfer(code, encoder_, target_, 77, 4711, slots_), UTOFU_SUCCESS);
    const CqCommand command = decoded();
    EXPECT_EQ(command.opcode, code == coding::kPut ? Opcode::put : Opcode::get);
    EXPECT_EQ(command.length, 4711U);
    EXPECT_EQ(command.local_stadd, 77U);
    EXPECT_EQ(command.remote_stadd, target_.stadd);
    EXPECT_EQ(command.mtu, kMtu);
    EXPECT_EQ(command.gap, 0);
  }
  EXPECT_EQ(encode_plain_transfer(coding::kGet, encoder_, target_, 1, 0, slots_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(encode_plain_transfer(coding::kPut, encoder_, target_, 1, 0, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().length, 0U);
  EXPECT_EQ(encode_plain_transfer(coding::kGet, encoder_, target_, 1, kMaxLength + 1, slots_), UTOFU_ERR_INVALID_SIZE);
}

TEST_F(DescriptorTest, AStrideIsOneSlotForEachBlock) {
  ASSERT_EQ(encode_transfer(coding::kGet, encoder_, target_, 1000, {16, 48, 4}, {}, slots_), UTOFU_SUCCESS);
  EXPECT_TRUE(whole_commands(slots_, 4));
  for (unsigned block = 0; block < 4; ++block) {
    CqCommand command;
    ASSERT_TRUE(decode(machine_, slots_[block], Slot{}, &command));
    EXPECT_EQ(command.opcode, Opcode::get);
    EXPECT_EQ(command.length, 16U);
    EXPECT_EQ(command.remote_stadd, target_.stadd + block * 48);
    EXPECT_EQ(command.local_stadd, 1000 + block * 48);
    EXPECT_EQ(command.mtu, kMtu);
  }
}

TEST_F(DescriptorTest, PiggybackOfEveryLength) {
  std::array<std::uint8_t, 32> data{};
  for (std::size_t i = 0; i < data.size(); ++i) data.at(i) = static_cast<std::uint8_t>(200 - i);
  for (std::size_t length = 1; length <= kMaxPiggyback; ++length) {
    ASSERT_EQ(encode_piggyback(encoder_, target_, data.data(), length, slots_), UTOFU_SUCCESS);
    const CqCommand command = decoded();
    EXPECT_EQ(command.opcode, Opcode::piggyback);
    EXPECT_EQ(command.slots, length <= 8 ? 1 : 2);
    EXPECT_EQ(command.length, length);
    EXPECT_EQ(std::memcmp(command.inlined.data(), data.data(), length), 0) << length;
  }
  EXPECT_EQ(encode_piggyback(encoder_, target_, nullptr, 0, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().length, 0U);
  EXPECT_EQ(encode_piggyback(encoder_, target_, data.data(), 33, slots_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(encode_piggyback(encoder_, target_, nullptr, 8, slots_), UTOFU_ERR_INVALID_POINTER);
}

TEST_F(DescriptorTest, Atomics) {
  for (const unsigned bytes : {4U, 8U}) {
    for (int operation = UTOFU_ARMW_OP_SWAP; operation <= UTOFU_ARMW_OP_OR; ++operation) {
      ASSERT_EQ(encode_armw(encoder_, target_, operation, 0x1122334455667788, bytes, slots_), UTOFU_SUCCESS);
      const CqCommand command = decoded();
      EXPECT_EQ(command.opcode, Opcode::armw);
      EXPECT_EQ(command.slots, 1);
      EXPECT_EQ(command.armw_op, operation);
      EXPECT_EQ(command.length, bytes);
      EXPECT_EQ(command.operand, 0x1122334455667788U);
    }
    ASSERT_EQ(encode_cswap(encoder_, target_, 5, 6, bytes, slots_), UTOFU_SUCCESS);
    const CqCommand command = decoded();
    EXPECT_EQ(command.opcode, Opcode::cswap);
    EXPECT_EQ(command.slots, 2);
    EXPECT_EQ(command.length, bytes);
    EXPECT_EQ(command.compare, 5U);
    EXPECT_EQ(command.operand, 6U);
  }
  EXPECT_EQ(encode_armw(encoder_, target_, 0, 1, 8, slots_), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(encode_armw(encoder_, target_, 6, 1, 8, slots_), UTOFU_ERR_INVALID_OP);
  target_.stadd += 4;
  EXPECT_EQ(encode_armw(encoder_, target_, 2, 1, 4, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(encode_armw(encoder_, target_, 2, 1, 8, slots_), UTOFU_ERR_INVALID_STADD);
  EXPECT_EQ(encode_cswap(encoder_, target_, 2, 1, 8, slots_), UTOFU_ERR_INVALID_STADD);
  target_.stadd += 2;
  EXPECT_EQ(encode_cswap(encoder_, target_, 2, 1, 4, slots_), UTOFU_ERR_INVALID_STADD);
}

TEST_F(DescriptorTest, NopHasFlagsAlone) {
  ASSERT_EQ(encode_nop(UTOFU_ONESIDED_FLAG_TCQ_NOTICE, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().opcode, Opcode::nop);
  EXPECT_TRUE(decoded().has(UTOFU_ONESIDED_FLAG_TCQ_NOTICE));
  EXPECT_EQ(encode_nop(1UL << 40U, slots_), UTOFU_ERR_INVALID_FLAGS);
}

TEST_F(DescriptorTest, BadArgumentsAreNamed) {
  Target bad = target_;
  bad.vcq_id ^= 1;
  EXPECT_EQ(encode_piggyback8(encoder_, bad, 1, 8, slots_), UTOFU_ERR_INVALID_VCQ_ID);
  for (const unsigned bit : {4U, 6U, 7U, 9U, 13U, 16U, 23U, 32U, 63U}) {
    bad = target_;
    bad.flags = 1UL << bit;
    EXPECT_EQ(encode_piggyback8(encoder_, bad, 1, 8, slots_), UTOFU_ERR_INVALID_FLAGS) << bit;
  }
  EXPECT_EQ(encode_piggyback8(encoder_, target_, 1, 9, slots_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(encode_transfer(coding::kGet, encoder_, target_, 1, {0}, {}, slots_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(encode_transfer(coding::kPut, encoder_, target_, 1, {kMaxLength + 1}, {}, slots_), UTOFU_ERR_INVALID_SIZE);
  for (const Pace pace : {Pace{0, 0}, Pace{1928, 0}, Pace{12, 0}, Pace{1920, 256}}) {
    EXPECT_EQ(encode_transfer(coding::kPut, encoder_, target_, 1, {8}, pace, slots_), UTOFU_ERR_INVALID_ARG);
  }
}

// As utf's authors found: the call succeeds, poll_tcq returns the error.
TEST_F(DescriptorTest, WideEdataIsTheHardwaresToRejectUnlessStrict) {
  target_.edata = 256;
  ASSERT_EQ(encode_piggyback8(encoder_, target_, 1, 8, slots_), UTOFU_SUCCESS);
  EXPECT_EQ(decoded().error, UTOFU_ERR_TCQ_LENGTH);
}

TEST_F(DescriptorTest, WhatNobodyEncodedIsNoCommand) {
  heddle::base::Random random(5);
  Slot any[3];
  unsigned accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    for (Slot& slot : any) {
      for (std::uint64_t& word : slot.words) word = random.next();
    }
    accepted += whole_commands(any, 3) ? 1U : 0U;
    CqCommand command;
    (void)decode(machine_, any[0], any[1], &command);  // whatever it returns, it must not crash
  }
  EXPECT_EQ(accepted, 0U);
  EXPECT_FALSE(whole_commands(slots_, 1)) << "zeroes";
  EXPECT_FALSE(whole_commands(slots_, 0));
  ASSERT_EQ(encode_cswap(encoder_, target_, 1, 2, 8, slots_), UTOFU_SUCCESS);
  EXPECT_FALSE(whole_commands(slots_, 1)) << "the second half is missing";
  EXPECT_FALSE(whole_commands(slots_ + 1, 1)) << "the first half is missing";
  slots_[1] = slots_[0];
  EXPECT_FALSE(whole_commands(slots_, 2));
}

}  // namespace
}  // namespace tofu_emulator::descriptor_test
