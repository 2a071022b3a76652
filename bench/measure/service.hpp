// Programs in which one serves others: RPC with many requests outstanding, and many to one.
//
// Both are tasks rather than operations: each library does them by the means that its programs
// would use. RPC: active messages, else messages, else puts with signals.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "measure/one_sided.hpp"

namespace heddle::bench::measure {

inline constexpr std::uint32_t kMostOutstanding = 128;
inline constexpr std::uint64_t kCallBytes = 64;

struct ServiceCall {
  std::uint64_t slot;
  std::uint64_t number;  // of the request; the reply has its answer
  std::uint64_t lane;    // of the client, and of the server
  std::byte rest[kCallBytes - 24];
};
static_assert(sizeof(ServiceCall) == kCallBytes);

inline std::uint64_t answer_to(std::uint64_t number) {
  return number * 3 + 1;
}

// The client's side: the free slots, and each slot's request.
class ServiceClient {
 public:
  ServiceClient(std::uint32_t lane, std::uint32_t outstanding) {
    for (ServiceCall& call : calls_) call.lane = lane;
    for (std::uint32_t i = 0; i < outstanding; ++i) free_[free_count_++] = i;
  }
  [[nodiscard]] bool has_free() const { return free_count_ > 0; }
  ServiceCall& take(std::uint64_t number) {
    const std::uint32_t slot = free_[--free_count_];
    calls_[slot].slot = slot;
    calls_[slot].number = number;
    return calls_[slot];
  }
  void replied(const ServiceCall& reply) {
    right_ = right_ && reply.slot < kMostOutstanding && reply.number == answer_to(calls_[reply.slot].number);
    if (reply.slot < kMostOutstanding) free_[free_count_++] = static_cast<std::uint32_t>(reply.slot);
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  std::array<ServiceCall, kMostOutstanding> calls_{};
  std::array<std::uint32_t, kMostOutstanding> free_{};
  std::uint32_t free_count_ = 0;
  bool right_ = true;
};

// n requests by active messages, whose handlers are the library's.
template <class L>
bool call_actively(L& library, std::uint32_t rank, std::uint32_t lane, std::uint32_t outstanding, std::uint64_t n) {
  if (rank == 1) {
    library.serve(lane, n);
    return true;
  }
  ServiceClient client(lane, outstanding);
  std::uint64_t sent = 0;
  std::uint64_t done = 0;
  while (done < n) {
    while (sent < n && client.has_free()) library.call(1, client.take(sent++));
    // At least one reply; then all that are there.
    ServiceCall reply;
    library.wait_reply(lane);
    while (library.next_reply(lane, &reply)) {
      client.replied(reply);
      ++done;
    }
  }
  return client.right();
}

// The same by messages: a receive for each request outstanding; the server takes one request after
// the other.
template <class L>
bool call_by_messages(L& library, std::uint32_t rank, std::uint32_t lane, std::uint32_t outstanding, std::uint64_t n) {
  constexpr std::uint64_t kRequest = 200;
  constexpr std::uint64_t kReply = 201;
  if (rank == 1) {
    ServiceCall call;
    for (std::uint64_t i = 0; i < n; ++i) {
      library.receive_now(lane, kAny, kRequest, &call, sizeof call);
      call.number = answer_to(call.number);
      library.send_now(lane, 0, kReply + call.slot, &call, sizeof call);
    }
    return true;
  }
  ServiceClient client(lane, outstanding);
  std::vector<ServiceCall> replies(outstanding);
  std::vector<typename L::Request> requests(outstanding, L::nothing());
  std::vector<int> ended(outstanding);
  std::uint64_t sent = 0;
  std::uint64_t done = 0;
  while (done < n) {
    while (sent < n && client.has_free()) {
      ServiceCall& call = client.take(sent++);
      library.receive(lane, 1, kReply + call.slot, &replies[call.slot], sizeof(ServiceCall), requests[call.slot]);
      library.send_now(lane, 1, kRequest, &call, sizeof call);
    }
    const int count = library.wait_some(lane, requests.data(), static_cast<int>(outstanding), ended.data());
    for (int i = 0; i < count; ++i)
      client.replied(replies[static_cast<std::size_t>(ended[static_cast<std::size_t>(i)])]);
    done += static_cast<std::uint64_t>(count);
  }
  return client.right();
}

// The same by puts with signals: slots in turn, a word for each request and each reply, that counts
// the uses of the slot.
template <class L>
class SignalledCalls {
 public:
  static_assert(kMostThreads * kMostOutstanding <= kWords);

  SignalledCalls(L& library, std::uint32_t lane, std::uint32_t outstanding)
      : library_(library), lane_(lane), outstanding_(outstanding) {}
  bool run(std::uint32_t rank, std::uint64_t n) { return rank == 1 ? serve(n) : ask(n); }

 private:
  [[nodiscard]] std::uint64_t word(std::uint64_t slot) const { return word_at(lane_ * kMostOutstanding + slot); }
  [[nodiscard]] std::uint64_t data(std::uint64_t slot) const {
    return kDataAt + (lane_ * kMostOutstanding + slot) * kCallBytes;
  }
  bool serve(std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t slot = i % outstanding_;
      library_.wait_signal(lane_, word(slot), ++uses_[slot]);
      std::memcpy(&calls_[slot], library_.own(data(slot)), sizeof(ServiceCall));
      calls_[slot].number = answer_to(calls_[slot].number);
      library_.put_signal(lane_, 0, data(slot), &calls_[slot], sizeof(ServiceCall), word(slot), uses_[slot]);
    }
    return true;
  }
  bool ask(std::uint64_t n) {
    bool right = true;
    const auto take = [&](std::uint64_t i) {
      const std::uint64_t slot = i % outstanding_;
      library_.wait_signal(lane_, word(slot), uses_[slot]);
      ServiceCall reply;
      std::memcpy(&reply, library_.own(data(slot)), sizeof reply);
      right = right && reply.slot == slot && reply.number == answer_to(i);
    };
    for (std::uint64_t i = 0; i < n; ++i) {
      if (i >= outstanding_) take(i - outstanding_);
      const std::uint64_t slot = i % outstanding_;
      calls_[slot].slot = slot;
      calls_[slot].number = i;
      library_.put_signal(lane_, 1, data(slot), &calls_[slot], sizeof(ServiceCall), word(slot), ++uses_[slot]);
    }
    for (std::uint64_t i = n > outstanding_ ? n - outstanding_ : 0; i < n; ++i) take(i);
    return right;
  }

  L& library_;
  std::uint32_t lane_;
  std::uint64_t outstanding_;
  std::array<ServiceCall, kMostOutstanding> calls_{};
  std::array<std::uint64_t, kMostOutstanding> uses_{};
};

// Each thread of rank 0 asks the thread of rank 1 that has its number.
template <class L>
void calls_of(Bench& bench, L& library, const char* name, std::uint32_t threads, std::uint32_t outstanding) {
  std::vector<std::atomic<bool>> right(threads);
  std::vector<std::unique_ptr<SignalledCalls<L>>> signalled;
  if constexpr (!Active<L> && !Messages<L>) {
    clear_words(library, 0, kMostThreads * kMostOutstanding);
    for (std::uint32_t lane = 0; lane < threads; ++lane) {
      signalled.push_back(std::make_unique<SignalledCalls<L>>(library, lane, outstanding));
    }
  }
  bench.measure(
      bench.program(std::string(name) + "_" + std::to_string(outstanding), "rate", kCallBytes, threads, threads),
      {[&](std::uint64_t) {
         for (auto& one : right) one.store(true);
       },
       [&](std::uint32_t lane, std::uint64_t n) {
         bool all = false;
         if constexpr (Active<L>) {
           all = call_actively(library, bench.rank(), lane, outstanding, n);
         } else if constexpr (Messages<L>) {
           all = call_by_messages(library, bench.rank(), lane, outstanding, n);
         } else {
           all = signalled[lane]->run(bench.rank(), n);
         }
         right[lane].store(all);
       },
       [&](std::uint64_t) {
         return std::all_of(right.begin(), right.end(), [](const auto& one) { return one.load(); });
       }});
  library.meet();
}

template <class L>
void calls(Bench& bench, L& library, const char* name, const std::vector<std::uint32_t>& threads) {
  if (!bench.wants_program(name)) return;
  for (const std::uint32_t count : threads) {
    for (const std::uint32_t outstanding : {16U, 32U, 128U}) {
      if (bench.options().quick && outstanding == 32) continue;
      calls_of(bench, library, name, count, outstanding);
    }
  }
}

// ---- many to one --------------------------------------------------------------------------------

// All ranks except 0 send windows of 8 bytes to rank 0. Rank 0 receives from any source and answers
// each window of each rank.
template <class L>
class ManyToOne {
 public:
  ManyToOne(Bench& bench, L& library) : bench_(bench), library_(library) {}

  void prepare(std::uint64_t run) {
    run_ = run;
    value_ = std::to_integer<std::uint64_t>(pattern(bench_.rank(), 0, run));
    right_ = true;
  }
  void work(std::uint64_t n) {
    if (bench_.rank() == 0) {
      receive(n);
    } else {
      for (std::uint64_t i = 0; i < n; ++i) send();
    }
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  static constexpr std::uint64_t kTag = 300;
  struct Message {
    std::uint64_t source;
    std::uint64_t value;
  };
  void send() {
    Message message{bench_.rank(), value_};
    typename L::Request requests[kWindow];
    for (auto& request : requests) library_.send(0, 0, kTag, &message, sizeof message, request);
    library_.wait_all(0, requests, kWindow);
    std::uint64_t answer = 0;
    library_.receive_now(0, 0, kTag + 1, &answer, sizeof answer);
    right_ = right_ && answer == kWindow;
  }
  // As many receives as a window has are posted all the time.
  void receive(std::uint64_t n) {
    const std::uint64_t all = n * kWindow * (bench_.size() - 1);
    Message messages[kWindow];
    typename L::Request requests[kWindow];
    std::vector<std::uint64_t> counts(bench_.size());
    for (std::uint64_t i = 0; i < kWindow; ++i) post(messages[i], requests[i]);
    for (std::uint64_t i = 0; i < all; ++i) {
      const std::uint64_t k = i % kWindow;
      library_.wait_all(0, &requests[k], 1);
      const Message message = messages[k];
      if (i + kWindow < all) post(messages[k], requests[k]);
      if (message.source == 0 || message.source >= bench_.size()) {
        right_ = false;
        continue;
      }
      const auto from = static_cast<std::uint32_t>(message.source);
      right_ = right_ && message.value == std::to_integer<std::uint64_t>(pattern(from, 0, run_));
      if (++counts[from] % kWindow != 0) continue;
      const std::uint64_t answer = kWindow;
      library_.send_now(0, from, kTag + 1, &answer, sizeof answer);
    }
  }
  void post(Message& message, typename L::Request& request) {
    library_.receive(0, kAny, kTag, &message, sizeof message, request);
  }

  Bench& bench_;
  L& library_;
  std::uint64_t run_ = 0;
  std::uint64_t value_ = 0;
  bool right_ = true;
};

template <class L>
void fan_in(Bench& bench, L& library) {
  if (!bench.wants_program("fan_in")) return;
  ManyToOne<L> program(bench, library);
  const std::uint32_t senders = bench.size() - 1;
  bench.measure(
      bench.by_windows(bench.program("fan_in", "rate", 16, static_cast<double>(kWindow * senders)), senders), 1,
      {[&](std::uint64_t run) { program.prepare(run); }, [&](std::uint32_t, std::uint64_t n) { program.work(n); },
       [&](std::uint64_t) { return program.right(); }});
}

}  // namespace heddle::bench::measure
