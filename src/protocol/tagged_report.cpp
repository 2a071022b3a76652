// Receives that have not ended, and messages that wait for one, in reports.
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "engine/core.hpp"
#include "engine/tapped.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {
namespace {

constexpr std::uint64_t kMostLines = 16;  // receives that are told one by one

unsigned long long wide(std::uint64_t value) {
  return value;
}

using Text = std::array<char, 64>;

Text source_text(const engine::Job& job, Source source) {
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

// What a receive waits for.
tap::Awaited awaited_by(Source source, std::string&& tag, std::uint64_t bytes) {
  tap::Awaited awaited;
  awaited.cause = tap::Cause::receive;
  const heddle_peer peer = peer_of(source);
  awaited.rank = peer.rank == kAnyNumber ? tap::kNobody : peer.rank;
  awaited.worker = peer.worker == kAnyNumber ? tap::kNobody : peer.worker;
  awaited.bytes = bytes;
  awaited.what = "receive";
  awaited.tag = std::move(tag);
  return awaited;
}

}  // namespace

void Tagged::report(engine::Findings& findings) const {
  std::uint64_t told = 0;
  matching_.each_receive([&](const PostedReceive& receive) {
    if (told++ >= kMostLines) return;
    const auto& posted = static_cast<const Posted&>(receive);
    const Wanted& wanted = posted.wanted;
    std::string tag = findings.tag_text(wanted.tag, wanted.mask);
    findings.say("receive of %s from %s, %llu bytes: posted; nothing that fits has come", tag.c_str(),
                 source_text(core_.job, wanted.source).data(), wide(posted.request.bytes));
    findings.under_way(awaited_by(wanted.source, std::move(tag), posted.request.bytes));
  });
  if (told > kMostLines) findings.say("and %llu more receives", wide(told - kMostLines));
  matching_.each_message([&](const KeptMessage& message) {
    findings.kept(rank_of(message.source), static_cast<std::uint32_t>(message.source), message.tag);
  });
  for (const tap::Kept& kept : findings.state.kept) {
    const bool one = kept.messages == 1;
    findings.say("%llu unexpected message%s with %s from worker %u of rank %u: no receive has taken %s",
                 wide(kept.messages), one ? "" : "s", kept.tag.c_str(), kept.worker, kept.rank, one ? "it" : "them");
  }
  report_fetches(findings);
}

// Reports receives whose messages have been sent.
void Tagged::report_fetches(engine::Findings& findings) const {
  const auto say_part = [&](const ReceiveRequest& request, heddle_peer from, std::uint64_t here, std::uint64_t all) {
    findings.say(
        "receive of %s from %s: its sender has sent; %llu of %llu bytes are here, the others come when the "
        "sender makes progress",
        findings.tag_text(request.receive->tag).c_str(), source_text(core_.job, source_of(from)).data(), wide(here),
        wide(all));
  };
  for (const PipeIn* pipe = receiving_; pipe != nullptr; pipe = pipe->next) {
    if (pipe->request.receive != nullptr) say_part(pipe->request, pipe->from, pipe->arrived, pipe->bytes);
    for (const Fetch* fetch = pipe->first; fetch != nullptr; fetch = fetch->next) {
      say_part(fetch->request, pipe->from, fetch->front + fetch->bytes - fetch->back, fetch->bytes);
    }
  }
  for (const Fetch* fetch = waiting_; fetch != nullptr; fetch = fetch->next) {
    findings.say(
        "receive of %s from %s: its message of %llu bytes waits to be fetched, %s",
        findings.tag_text(fetch->request.receive->tag).c_str(), source_text(core_.job, source_of(fetch->from)).data(),
        wide(fetch->bytes),
        fetch->reached ? "for no operation is free" : "for what its sender's rank has published is not here yet");
  }
}

void Tagged::tell_receive(const heddle_receive& receive, std::vector<tap::Awaited>* things) const {
  if (receive.status != HEDDLE_POSTED) return;
  const Posted& posted = posted_of(const_cast<heddle_receive*>(&receive));
  if (posted.stored()) {
    const Wanted& wanted = posted.wanted;
    things->push_back(awaited_by(wanted.source, core_.job.tag_text(wanted.tag, wanted.mask), posted.request.bytes));
    return;
  }
  // Both sender and receiver may copy it.
  things->push_back({.cause = tap::Cause::answer,
                     .rank = receive.source.rank,
                     .worker = receive.source.worker,
                     .bytes = receive.bytes,
                     .what = "message that has been sent",
                     .tag = core_.job.tag_text(receive.tag, kWholeTag)});
}

// Explains a message that was offered.
void Tagged::explain(const engine::Operation& operation, tap::Awaited* awaited) const {
  awaited->cause = tap::Cause::unreceived;
  awaited->what = words().name;
  if (offered_ != nullptr)
    awaited->tag = core_.job.tag_text(offered_[core_.operations.index(operation)].tag, kWholeTag);
}

void Tagged::note(tap::TraceEvent event, heddle_peer peer, std::uint64_t tag, std::uint64_t bytes, bool was_here) {
  const std::uint64_t who = tap::TraceNote::who_of(event, peer.rank, peer.worker, core_.index, was_here ? 1 : 0, 0);
  // The arrival was noted just before.
  was_here ? tracer_->note_alike({tag, bytes, who}) : tracer_->note_with_last({tag, bytes, who});
}

void Tagged::note_matches(Matches* matches) {
  if (matches->times == 0) return;
  const heddle_peer from = matches->from;
  const std::uint64_t who = tap::TraceNote::who_of(tap::TraceEvent::matched, from.rank, from.worker, core_.index, 0, 0);
  tracer_->note_with_last({matches->tag, matches->bytes, who}, std::exchange(matches->times, 0));
}

}  // namespace heddle::protocol
