#include "protocol/way.hpp"

#include <algorithm>

#include "transport/command.hpp"
#include "wire/messages.hpp"

namespace heddle::protocol {

namespace {

// To peers of this machine longer ones go in parts: from there on two copies at the same time are
// faster than two in a row. Each part costs its receiver about as much time as 6 KiB of a copy.
constexpr std::uint64_t kMostEager = std::uint64_t{16} << 10;
// Longer ones wait for their receive even where there is credit for them: an unexpected message is
// copied once more.
constexpr std::uint64_t kMostPiped = std::uint64_t{512} << 10;

std::uint64_t longest_inlined(std::uint32_t header_bytes) {
  return transport::Command::kInlineBytes - header_bytes;
}

}  // namespace

WayLimits tagged_limits(const transport::Capabilities& can, const base::Config& config, bool mapped) {
  const std::uint64_t packet = can.max_message - sizeof(std::uint64_t);
  const std::uint64_t asked = config.number(base::Var::tag_eager_bytes);
  // A message that needs a whole window could wait for ever for credit that is not reported yet;
  // half of one leaves room for others.
  const std::uint64_t half = config.number(base::Var::tag_credit_bytes) / 2 - wire::kTaggedNode - 64;
  WayLimits limits;
  limits.eager = std::min({packet, half, asked == 0 ? packet : asked});
  limits.inlined = std::min<std::uint64_t>(longest_inlined(sizeof(std::uint64_t)), limits.eager);
  if (mapped && has_pipes(can)) {
    limits.eager = std::min(limits.eager, kMostEager);
    limits.piped = std::min(half, asked == 0 ? kMostPiped : asked);
    limits.longer = Way::pulled;
  }
  return limits;
}

WayLimits active_limits(const transport::Capabilities& can, const base::Config& config) {
  const std::uint64_t asked = config.number(base::Var::am_eager_bytes);
  const bool gets = (can.opcodes & transport::bit(transport::Opcode::get)) != 0;
  WayLimits limits;
  limits.inlined = longest_inlined(0);
  limits.eager = can.max_message;
  limits.piped = !gets                  ? WayLimits::kAll
                 : asked != 0           ? asked
                 : can.fetch_bytes != 0 ? can.fetch_bytes
                                        : WayLimits::kAll;
  return limits;
}

const char* name_of(Way way) {
  switch (way) {
    case Way::inlined:
      return "inline";
    case Way::eager:
      return "eager";
    case Way::piped:
      return "piped";
    case Way::pulled:
      return "pulled";
    case Way::fetched:
      return "fetched";
  }
  return "";
}

}  // namespace heddle::protocol
