// The table of protocols. A new protocol is a file and a row here.
#include "worker/protocols.hpp"

#include <array>

#include "protocol/requests.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {
namespace {

// Makes a protocol that has kRows (the rows of what arrives for it) and is constructed from a core.
template <class Kind>
constexpr ProtocolEntry entry() {
  return {Kind::kRows,
          [](Worker& worker) -> std::unique_ptr<Protocol> { return std::make_unique<Kind>(worker.core()); }};
}

constexpr std::array kTable = {
    entry<Requests>(),
};

// Every row has one owner.
constexpr bool is_sound() {
  std::array<bool, wire::kRows> taken{};
  taken[wire::kExtensionRow] = true;  // the room above
  for (const wire::Kind kind : {wire::Kind::invalid, wire::Kind::packet, wire::Kind::active_message,
                                wire::Kind::fragment, wire::Kind::user, wire::Kind::tagged})
    taken[wire::row_of(kind)] = true;
  for (const ProtocolEntry& entry : kTable) {
    for (const std::uint32_t row : entry.rows) {
      if (row >= wire::kRows || taken[row]) return false;
      taken[row] = true;
    }
  }
  return true;
}
static_assert(is_sound(), "two protocols have the same row");

}  // namespace

std::span<const ProtocolEntry> protocol_table() {
  return kTable;
}

}  // namespace heddle::engine
