// How a message lies in its command, and how its packet is written: every length.
#include "transport/command.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heddle::transport::command_test {
namespace {

std::vector<std::byte> some_bytes(std::size_t count, unsigned first) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

// Header, zeros up to a multiple of 8, payload.
std::vector<std::byte> packet_of(const std::vector<std::byte>& header, const std::vector<std::byte>& payload) {
  std::vector<std::byte> packet = header;
  packet.resize((header.size() + 7) / 8 * 8);
  packet.insert(packet.end(), payload.begin(), payload.end());
  return packet;
}

TEST(Command, APacketIsHeaderZerosAndPayloadAndNothingBehindIt) {
  constexpr std::byte kUntouched{0xEE};
  for (std::size_t header_bytes = 0; header_bytes <= 72; ++header_bytes) {
    for (std::size_t payload_bytes = 0; payload_bytes <= 80; ++payload_bytes) {
      const std::vector<std::byte> header = some_bytes(header_bytes, 1);
      const std::vector<std::byte> payload = some_bytes(payload_bytes, 100);
      const std::vector<std::byte> expected = packet_of(header, payload);
      Command command(1, 2, 3);
      command.set_message(header.data(), static_cast<std::uint32_t>(header_bytes), payload.data(), payload_bytes);
      ASSERT_EQ(command.inlined, expected.size() <= Command::kInlineBytes) << header_bytes << ' ' << payload_bytes;
      ASSERT_EQ(command.inlined, Command::inlines(static_cast<std::uint32_t>(header_bytes), payload_bytes));
      ASSERT_EQ(command.packet_bytes(), expected.size());
      // An inlined packet may bring zeros up to a multiple of 8.
      const std::size_t most = command.inlined ? (expected.size() + 7) / 8 * 8 : expected.size();
      std::vector<std::byte> written(expected.size() + 64, kUntouched);
      write_packet(command, written.data());
      for (std::size_t i = 0; i < written.size(); ++i) {
        const std::byte wanted = i < expected.size() ? expected[i] : i < most ? std::byte{0} : kUntouched;
        ASSERT_EQ(written[i], wanted) << "byte " << i << " of " << header_bytes << " + " << payload_bytes;
      }
    }
  }
}

TEST(Command, AWordBeforeThePayload) {
  const std::uint64_t word = 0x1122334455667788;
  for (std::size_t payload_bytes = 0; payload_bytes <= 80; ++payload_bytes) {
    const std::vector<std::byte> payload = some_bytes(payload_bytes, 7);
    std::vector<std::byte> header(sizeof word);
    std::memcpy(header.data(), &word, sizeof word);
    const std::vector<std::byte> expected = packet_of(header, payload);
    Command command(0, 0, 0);
    command.set_message(word, payload.data(), payload_bytes);
    ASSERT_EQ(command.packet_bytes(), expected.size());
    std::vector<std::byte> written(expected.size() + 64);
    write_packet(command, written.data());
    written.resize(expected.size());
    ASSERT_EQ(written, expected) << payload_bytes;
  }
}

}  // namespace
}  // namespace heddle::transport::command_test
