// How a message goes: inline, eager, piped, pulled or fetched. The rule is one function, way_of(),
// over limits that are set once, when a worker is opened; `heddle info messages` prints them. (The
// model is set_protocol() of LCI.) What happens on the way may change it: a message without credit,
// or room, may be offered instead of waiting (api/tagged.cpp), and of a pulled message each side
// copies what the other does not.
#pragma once

#include <cstdint>
#include <limits>

#include "base/config.hpp"
#include "transport/transport.hpp"

namespace heddle::protocol {

enum class Way : std::uint8_t {
  inlined,  // in its command and its record: the source is free at once
  eager,    // whole, in one message of the transport
  piped,    // in parts: the receiver takes the first ones while the sender sends the others
  pulled,   // offered; its receiver asks for the parts, or copies alone if the sender is not there
  fetched   // offered; its receiver gets it from the sender's memory
};

struct WayLimits {
  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

  // The longest message of each way, in bytes of data. A way whose limit is not above that of the
  // one before is not used.
  std::uint64_t inlined = 0;
  std::uint64_t eager = 0;
  std::uint64_t piped = 0;
  Way longer = Way::fetched;  // pulled or fetched

  bool operator==(const WayLimits&) const = default;
};

// `matched`: its sender waits for the receive (HEDDLE_WHEN_MATCHED).
[[nodiscard]] constexpr Way way_of(const WayLimits& limits, std::uint64_t bytes, bool matched) {
  if (matched) return limits.longer;                 // rule 1
  if (bytes <= limits.inlined) return Way::inlined;  // rule 2
  if (bytes <= limits.eager) return Way::eager;      // rule 3
  if (bytes <= limits.piped) return Way::piped;      // rule 4
  return limits.longer;                              // rule 5
}

// Of tagged messages. `mapped`: to peers whose memory this process maps, and which it reaches in
// order.
[[nodiscard]] WayLimits tagged_limits(const transport::Capabilities& can, const base::Config& config, bool mapped);
// Of active messages without a header. Their handlers run when they are whole, so rule 1 is for
// none of them.
[[nodiscard]] WayLimits active_limits(const transport::Capabilities& can, const base::Config& config);

// Whether there are peers for which tagged_limits(…, true) are.
[[nodiscard]] inline bool has_pipes(const transport::Capabilities& can) {
  return can.ordered_messages && can.direct;
}

// The field's word for it.
[[nodiscard]] const char* name_of(Way way);

}  // namespace heddle::protocol
