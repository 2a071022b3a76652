// Tagged messages: every rank sends a number and a long text to rank 0. Rank 0 receives the numbers
// from any source, in the order in which they arrive, and then each rank's text by source and tag.
#include <heddle/heddle.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kNumber = 1;
constexpr std::uint64_t kText = 2;
constexpr std::size_t kLength = 200'000;  // too long for one packet: rank 0 fetches it

std::string text_of(std::uint32_t rank) {
  return std::string(kLength, static_cast<char>('a' + rank % 26));
}

// Receives into `data`. Returns the sender.
heddle_peer receive(heddle::Worker& worker, const heddle_wanted& wanted, std::span<std::byte> data) {
  heddle_receive one;
  heddle::check(worker.recv(wanted, data, &one));
  heddle::check(worker.wait(one));
  return one.source;
}

// False: a text is wrong.
bool collect(heddle::Worker& worker, std::uint32_t ranks) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < ranks; ++i) {
    std::uint64_t number = 0;
    receive(worker, {{HEDDLE_ANY, HEDDLE_ANY}, kNumber, UINT64_MAX}, heddle::writable_bytes_of(number));
    sum += number;
  }
  std::string text(kLength, '\0');
  std::size_t whole = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    receive(worker, {{rank, 0}, kText, UINT64_MAX}, std::as_writable_bytes(std::span(text)));
    if (text == text_of(rank)) ++whole;
  }
  std::printf("rank 0 got the sum %llu and %zu texts\n", static_cast<unsigned long long>(sum), whole);
  return whole == ranks;
}

}  // namespace

int main() {
  try {
    heddle::Context context = heddle::Context::join();
    heddle::Worker worker = context.open_worker();
    const std::uint64_t number = 100 + context.rank();
    const std::string text = text_of(context.rank());
    heddle::check(worker.send({0, 0}, kText, std::as_bytes(std::span(text))));
    heddle::check(worker.send({0, 0}, kNumber, heddle::bytes_of(number)));
    const bool right = context.rank() != 0 || collect(worker, context.size());
    heddle::check(worker.quiet());  // the text is reusable when rank 0 has it
    return right ? 0 : 1;
  } catch (const heddle::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
