// The functions that a library must offer to be measured. Each measurement is a template over it,
// written once, so that every library runs the same loops and its calls are compiled straight into
// them. A library does not declare features that it lacks. Then a concept below fails, and the
// measurement is left out.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::bench::measure {

// ---- the memory that others put into and get from: words to wait for, then data -----------------

// from one word to the next: no two in lines that are fetched together
inline constexpr std::uint64_t kWordBytes = 256;
inline constexpr std::uint64_t kWords = 1024;
inline constexpr std::uint64_t kDataAt = kWords * kWordBytes;
inline constexpr std::uint64_t kDataBytes = std::uint64_t{8} << 20;  // at least
inline constexpr std::uint64_t word_at(std::uint64_t i) {
  return i * kWordBytes;
}

inline constexpr std::uint32_t kAny = ~std::uint32_t{0};  // as the source of a receive
inline constexpr std::uint32_t kLanes = 64;               // at most
// of a message that is answered
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
// Of a message of the programs that measure messages only.
inline constexpr std::uint64_t kMostMessageBytes = std::uint64_t{64} << 20;
// For puts and gets as long as the memory: the bench bandwidth.
inline constexpr std::uint64_t kMostBandwidthBytes = std::uint64_t{1} << 28;

enum class Atomic { fetch_add, swap, compare_swap, add, bit_xor, bit_and, bit_or };

// How its figures are labelled.
struct Identity {
  std::string transport;  // the library's name in records
  std::string sharing;    // how threads use its queues
  std::string memory = "allocated";
  bool own_queues = true;    // one for each thread
  bool is_variant = false;   // of Heddle: programs of one thread only tell what the mode costs
  bool owner_helps = false;  // memory that is reached only while its owner makes progress
  // Signals of puts are carried out by their owner's progress: there is no word to watch.
  bool owner_signals = false;
};

// A `lane` is a thread's way into the library: a queue of its own, or one that all lanes share.
// Only one thread uses a lane at a time. Offsets are from the beginning of a process's memory.
//   put, get, atomic   post; true: it may be under way until flush, and source and target belong to
//                      it
//   put_signal         data, then the word with a value; set_word: the word alone. Both leave
//                      without another call, and a value may be the caller's own
//   flush, quiet       until all to one rank, or all, has ended there; progress: true if something
//                      happened
//   meet               a barrier of all processes that makes progress
template <class L>
concept Library = requires(L& l, std::uint32_t lane, std::uint32_t rank, std::uint64_t at, const void* in, void* out) {
  { l.identity() } -> std::same_as<Identity>;
  { l.own(at) } -> std::same_as<std::byte*>;
  { l.put(lane, rank, at, in, at) } -> std::same_as<bool>;
  { l.get(lane, rank, at, out, at) } -> std::same_as<bool>;
  { l.put_signal(lane, rank, at, in, at, at, at) } -> std::same_as<bool>;
  l.set_word(lane, rank, at, at);
  l.flush(lane, rank);
  l.quiet(lane);
  { l.progress(lane) } -> std::same_as<bool>;
  l.meet();
};

// atomic<op>(lane, rank, at, operand, &result). A result is there when it has ended.
template <class L, Atomic kOp>
concept HasAtomic = requires(L& l, std::uint64_t value) { l.template atomic<kOp>(0U, 0U, value, value, &value); };

// Messages with tags. send and receive begin, wait_all and wait_some end; the _now forms do both.
template <class L>
concept Messages = requires(L& l, typename L::Request& request, const void* in, void* out, int* ended) {
  l.send(0U, 0U, std::uint64_t{}, in, std::uint64_t{}, request);
  l.receive(0U, kAny, std::uint64_t{}, out, std::uint64_t{}, request);
  l.wait_all(0U, &request, std::uint64_t{});
  l.send_now(0U, 0U, std::uint64_t{}, in, std::uint64_t{});
  l.receive_now(0U, kAny, std::uint64_t{}, out, std::uint64_t{});
};

// Waits of programs for a word that others write.
template <class L>
concept Signals = requires(L& l) { l.wait_signal(0U, std::uint64_t{}, std::uint64_t{}); };

// Buffers that are announced by words or counts: an atomic count, and a barrier that completes all
// puts.
template <class L>
concept Counts = requires(L& l) {
  l.put_now(0U, 0U, std::uint64_t{}, static_cast<const void*>(nullptr), std::uint64_t{});
  l.fence(0U);
  l.add_word(0U, 0U, std::uint64_t{}, std::uint64_t{});
  l.meet_complete();
};

// Active messages. message(lane, rank, data, bytes, answered): to the lane of the same number,
// which is the first word of the data; its handler counts there, and answers with a message as long
// if it is to. await waits as its programs do, and sends what handlers could not.
template <class L>
concept Active = requires(L& l, const void* data) {
  l.message(0U, 0U, data, std::uint64_t{}, true);
  { l.arrived(0U) } -> std::same_as<std::uint64_t>;
  l.await(0U, std::uint64_t{});
};

}  // namespace heddle::bench::measure
