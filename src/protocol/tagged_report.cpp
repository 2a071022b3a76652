// Receives that have not ended, in the report of a wait that lasts too long.
#include <array>
#include <cstdio>

#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::engine {
namespace {

constexpr std::uint64_t kMostLines = 16;  // receives that are told one by one

unsigned long long wide(std::uint64_t value) {
  return value;
}

using Text = std::array<char, 64>;

Text source_text(const Job& job, Source source) {
  Text text{};
  const heddle_peer peer = peer_of(source);
  if (peer.rank == kAnyNumber) {
    std::snprintf(text.data(), text.size(), "anybody");
    return text;
  }
  const char* failed = job.failed(peer.rank) ? " (which has failed)" : "";
  if (peer.worker == kAnyNumber) {
    std::snprintf(text.data(), text.size(), "any worker of rank %u%s", peer.rank, failed);
  } else {
    std::snprintf(text.data(), text.size(), "worker %u of rank %u%s", peer.worker, peer.rank, failed);
  }
  return text;
}

}  // namespace

void Tagged::report() const {
  const base::Log& log = core_.job.environment().log;
  std::uint64_t told = 0;
  matching_.each_receive([&](const PostedReceive& receive) {
    if (told++ >= kMostLines) return;
    const auto& posted = static_cast<const Posted&>(receive);
    const Wanted& wanted = posted.wanted;
    log.say("  receive of tag 0x%llx (mask 0x%llx) from %s, %llu bytes: posted%s; nothing that fits has come",
            wide(wanted.tag), wide(wanted.mask), source_text(core_.job, wanted.source).data(),
            wide(posted.request.bytes), posted.shown != nullptr ? ", and shown to its sender" : "");
  });
  if (told > kMostLines) log.say("  and %llu more receives", wide(told - kMostLines));
  for (const Shown* shown = taken_; shown != nullptr; shown = shown->next) {
    const wire::BoardPlace& place = shown->inlet->board->places[shown->index];
    log.say(
        "  receive of tag 0x%llx from %s: its sender has sent; %llu of %llu bytes are copied, by who makes progress",
        wide(shown->request.receive->tag), source_text(core_.job, source_of(shown->inlet->from)).data(),
        wide(place.finished.load(std::memory_order_relaxed)), wide(shown->total));
  }
  for (const Fetch* fetch = waiting_; fetch != nullptr; fetch = fetch->next) {
    log.say("  receive of tag 0x%llx from %s: its message of %llu bytes waits to be fetched, %s",
            wide(fetch->request.receive->tag), source_text(core_.job, source_of(fetch->from)).data(),
            wide(fetch->bytes),
            fetch->reached ? "for no operation is free" : "for what its sender's rank has published is not here yet");
  }
}

}  // namespace heddle::engine
