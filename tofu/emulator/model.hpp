// The timing model: its numbers, busy times of resources, links, and clocks of VCQs.
//
// The numbers are in one place (namespace model_parameters), in nanoseconds and bytes. Where they
// come from, and how sure they are:
//
//   measured   one user-level suite of one-sided operations on 12 nodes of TofuD, one process a
//              node (2026): 8-byte put one way 0.97-0.99 us over one link, 0.08 us more for each
//              further one; get round trip 1.48-1.51 us, atomic 1.32-1.35 us; put t = 1.23 us +
//              bytes / 6.36 GB/s
//   published  the paper on UCX over Tofu Interconnect D for many threads, which docs/tofu.md
//              describes
//   layout     frame and header sizes of published register layouts
//   derived    chosen so that the sums equal the measured values
//   assumed    unknown; a guess that contradicts none of the others
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tofu/emulator/cq.hpp"
#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/machine.hpp"

namespace tofu_emulator::model_parameters {

// Processor.
inline constexpr std::uint64_t kPost = 200;     // a call that posts: "about 0.2 us" (measured)
inline constexpr std::uint64_t kPostMore = 30;  // each further command of the same call (assumed)
// a poll that finds something (assumed); a poll in vain costs nothing
inline constexpr std::uint64_t kPoll = 50;
// transfer of a VCQ's lock and lines from another core (assumed)
inline constexpr std::uint64_t kHandOver = 150;

// Threads that spin for a lock around a shared VCQ (UTOFU_EMU_MODEL=2). None of these numbers is
// fitted to the paper, whose single worker they describe. The processor has four groups of 12
// cores, each with its own L2, on a ring (published). Programs bind adjacent threads to adjacent
// cores, as the paper does. No source was found for the transfer time of a line between cores: the
// order of magnitude is that of other processors with many cores.
inline constexpr std::uint64_t kCoresOfGroup = 12;  // (published)
// a line from another core of the group (assumed)
inline constexpr std::uint64_t kLineNear = 50;
inline constexpr std::uint64_t kLineFar = 150;  // of another group (assumed)
inline constexpr std::uint64_t kLinesOfTurn =
    3;  // of the lock, of the TOQ's end, of the end of the queue to poll (assumed)
// each spinner reads the lock's line after a release; half of these reads come before the next
// holder's access (assumed: half an L2 latency each)
inline constexpr std::uint64_t kSpinnerRead = 10;
inline constexpr std::uint64_t kPollInVain = 50;  // like a poll that finds something (assumed)
// not a time: useful calls per user after which a thread that stopped polling in vain no longer
// counts as a spinner
inline constexpr std::uint64_t kRecentCalls = 4;

// From the processor's doorbell to the first byte on the link: 0.98 = kPost + kStart + kFlight +
// one link + frame (derived).
inline constexpr std::uint64_t kStart = 275;
// fetching data that is not in the command: 1.23 - 0.98 us (derived)
inline constexpr std::uint64_t kReadSource = 250;
// without links: 0.49 us at one link, Ajima et al. 2018 (published)
inline constexpr std::uint64_t kFlight = 410;
inline constexpr std::uint64_t kLink = 80;  // each link (measured)
inline constexpr std::uint64_t kReturn =
    205;  // an answer, without links: half a flight; the atomic's round trip (derived)
// an atomic at the target (assumed; with kReturn gives 1.33 us)
inline constexpr std::uint64_t kExecute = 50;
// reading the data of a get (assumed; gives 1.48 us)
inline constexpr std::uint64_t kReadTarget = 200;
// from the arrival of data to the start of the command that it releases (assumed)
inline constexpr std::uint64_t kRelease = 100;

// A TNI. 31 million puts/s by 24 VCQs on 6 TNIs (published) mean one in 190 ns for each TNI; 14.7
// million gets/s one in 400. It is not known whether a TNI, its CQs or the processor sets these
// limits; here it is the TNI.
inline constexpr std::uint64_t kTniPut = 190;
inline constexpr std::uint64_t kTniGet = 400;

// Wire. 6.36 GB/s of payload (measured) are 6.60 GB/s in frames of 1920 bytes. This limit holds for
// one link and for one TNI: six TNIs to the same neighbour are no faster than one (measured), to
// six neighbours six times as fast (published: 38.1 GB/s).
inline constexpr std::uint64_t kFrameHead = 8;     // routing (layout)
inline constexpr std::uint64_t kPacketHead = 64;   // protocol and checksum (layout)
inline constexpr std::uint64_t kFrameUnit = 32;    // (layout)
inline constexpr std::uint64_t kLeastFrame = 104;  // (layout)
inline constexpr double kBytesPerNs = 6.60;        // (derived)

// Registration of memory: system calls; the model lets one thread of a process make one at a time
// (assumed). Without a cache, one thread's ping-pong of 64 bytes takes 1.4 instead of 1.2 us: the
// difference is the time of a call to register (published). Without a cache, 24 threads reach 2.8
// million gets/s: so both calls together take 357 ns, of which deregistration takes the rest
// (published). That 24 threads without a cache reach only 0.28 million puts/s (also published)
// contradicts both, and also the 10.9 us of a ping-pong with 48 threads: docs/tofu.md.
inline constexpr std::uint64_t kRegister = 200;
inline constexpr std::uint64_t kDeregister = 157;

// Barrier gates: 0.6-0.8 us a stage (assumed): a flight, links, and this.
inline constexpr std::uint64_t kGate = 150;

}  // namespace tofu_emulator::model_parameters

namespace tofu_emulator {

// How much of its time a shared resource has granted, in the timing model: a link, or the lock that
// registrations take.
//
// Time is divided into bins. For each bin the ledger knows how much is taken, and up to which
// point. A request takes the time that is free from its own time on, in pieces if necessary, as
// packets of several messages share a link. So the ledger never grants more time than there is. A
// request that comes late in the real run with an early virtual time still finds what was free then
// (a Calendar remembers only 128 pieces: too few where many threads leave gaps). The price: if
// requests do not come in the order of their times, grants may overlap within a bin.
//
// Zeroed memory is a ledger in which nothing is taken, so it may lie in fresh shared memory.
class Ledger {
 public:
  static constexpr std::uint64_t kBin = 128;  // ns
  // 8.4 ms are remembered. Earlier time counts as taken: time may be wasted, but is never granted
  // twice.
  static constexpr std::uint64_t kBins = std::uint64_t{1} << 16U;

  struct Grant {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Grants `length` nanoseconds, the first not before `earliest`.
  Grant take(std::uint64_t earliest, std::uint64_t length) {
    earliest = std::max(earliest, first_ * kBin);
    Grant grant{earliest, earliest};
    for (std::uint64_t bin = earliest / kBin, left = length; left != 0; ++bin) {
      remember(bin);
      const std::uint64_t from = std::max(earliest, bin * kBin) - bin * kBin;
      std::uint64_t begin = from;
      const std::uint64_t end = take_of(bins_[bin % kBins], from, &begin, &left);
      if (end == from) continue;  // none was free
      if (grant.end == earliest) grant.begin = bin * kBin + begin;
      grant.end = bin * kBin + end;
    }
    return grant;
  }

 private:
  struct Bin {
    std::uint8_t taken = 0;  // nanoseconds taken in total
    std::uint8_t end = 0;    // the bin is free from here on
  };

  // Takes from a bin up to *left of what is free from `from` on. Sets where it begins, and returns
  // where it ends; returns `from` if nothing was free. The positions of gaps before the end of the
  // taken time are not known; the earliest time is assumed to be free.
  static std::uint64_t take_of(Bin& bin, std::uint64_t from, std::uint64_t* begin, std::uint64_t* left) {
    const std::uint64_t after = std::max<std::uint64_t>(from, bin.end);
    const std::uint64_t gaps = after - from > bin.taken ? after - from - bin.taken : 0;
    const std::uint64_t piece = std::min(gaps + kBin - after, *left);
    if (piece == 0) return from;
    *begin = gaps != 0 ? from : after;
    *left -= piece;
    const std::uint64_t end = piece > gaps ? after + piece - gaps : from + piece;
    bin.taken = static_cast<std::uint8_t>(bin.taken + piece);
    bin.end = static_cast<std::uint8_t>(std::max<std::uint64_t>(bin.end, end));
    return end;
  }

  void remember(std::uint64_t bin) {
    if (bin < first_ + kBins) return;
    const std::uint64_t first = bin - kBins + 1;
    if (first - first_ >= kBins) {
      bins_.fill({});
    } else {
      for (std::uint64_t old = first_; old != first; ++old) bins_[old % kBins] = {};
    }
    first_ = first;
  }

  std::uint64_t first_ = 0;  // the oldest remembered bin
  std::array<Bin, kBins> bins_;
};
static_assert(Ledger::kBin < 256);

// The busy times of a resource that serves one request at a time, in the timing model.
//
// Requests come in the order of the real run, which differs from the order of their virtual times:
// a thread that did not run for a while asks for a time before those already reserved. So a request
// gets the first gap that is long and late enough. Only times before all remembered ones count as
// past.
class Calendar {
 public:
  static constexpr std::size_t kRemembered = 128;

  // Reserves the first free time of that length that begins at `earliest` or later, and returns its
  // beginning.
  std::uint64_t reserve(std::uint64_t earliest, std::uint64_t length) {
    std::uint64_t begin = std::max(earliest, past_);
    std::size_t at = 0;
    for (; at < count_; at++) {
      if (begin + length <= busy_[at].begin) break;
      begin = std::max(begin, busy_[at].end);
    }
    insert(at, begin, begin + length);
    return begin;
  }

 private:
  struct Busy {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Sorted; adjacent times are merged.
  void insert(std::size_t at, std::uint64_t begin, std::uint64_t end) {
    const bool touches_before = at > 0 && busy_[at - 1].end == begin;
    const bool touches_after = at < count_ && busy_[at].begin == end;
    if (touches_before && touches_after) {
      busy_[at - 1].end = busy_[at].end;
      std::copy(busy_.begin() + at + 1, busy_.begin() + count_, busy_.begin() + at);
      count_--;
    } else if (touches_before) {
      busy_[at - 1].end = end;
    } else if (touches_after) {
      busy_[at].begin = begin;
    } else {
      if (count_ == kRemembered) {
        if (at == 0) return;  // older than all others: not remembered
        past_ = busy_[0].end;
        std::copy(busy_.begin() + 1, busy_.end(), busy_.begin());
        count_--;
        at--;
      }
      std::copy_backward(busy_.begin() + at, busy_.begin() + count_, busy_.begin() + count_ + 1);
      busy_[at] = {begin, end};
      count_++;
    }
  }

  std::array<Busy, kRemembered> busy_;
  std::size_t count_ = 0;
  std::uint64_t past_ = 0;
};

class World;

// The ends of a message's route.
struct Route {
  std::uint32_t from_node = 0;
  std::uint32_t to_node = 0;
  std::uint16_t tni = 0;
  std::uint8_t path = kNoPath;
};

// The node where a link begins, and its direction: 2 * axis, axes X Y Z A B C; + 1: backward.
struct LinkPlace {
  std::uint32_t node = 0;
  std::uint32_t direction = 0;
  bool operator==(const LinkPlace&) const = default;
};

// Resources that processes share in the timing model: the links of the torus, one for each node and
// direction, and the TNIs of a node. They lie in the world's memory.
//
// A packet takes the route that Machine::hops() counts: along A, B and C to its path's coordinates
// (default: the target's), then along X, Y and Z, then along A, B and C to the target. On each axis
// it goes the shorter way round, forward if both are equal. It is switched through: the next link
// begins when the first byte arrives, so a message without competition pays the wire time once, for
// any distance. Not modelled: a TNI does not stop when its link is busy, and routers have room for
// all waiting packets.
class Links {
 public:
  // The number of links and TNIs that have a ledger: those used first. The others never delay a
  // message.
  static constexpr std::size_t kMost = 4096;
  // The size of the zeroed memory, aligned to a page, that the processes share. Only the part in
  // use is touched.
  [[nodiscard]] static std::size_t bytes(const Machine& machine);

  // world: null in tests; then a process that dies within a call blocks the others for ever.
  Links(std::byte* memory, const Machine& machine, const World* world);

  struct Passage {
    std::uint64_t left_ns = 0;     // its last byte has left onto the first link
    std::uint64_t arrives_ns = 0;  // its last byte has passed the last link
  };
  // Passes a message that takes `length` on each link and whose first byte is at the first link at
  // `head_ns`. Within a node there is no link to wait for. Any thread.
  Passage pass(const Route& route, std::uint64_t head_ns, std::uint64_t length);

  // Uses a TNI of a node for `length`. Returns the end. Any thread.
  std::uint64_t serve(std::uint32_t node, std::uint16_t tni, std::uint64_t ready_ns, std::uint64_t length);

  // Calls `visit(LinkPlace)` for the links of a route, in order.
  template <class Visit>
  static void for_each(const Machine& machine, const Route& route, Visit&& visit);

 private:
  struct Link;

  [[nodiscard]] Ledger::Grant take(const LinkPlace& place, std::uint64_t earliest, std::uint64_t length);
  [[nodiscard]] Link* find(const LinkPlace& place);
  void lock(Link& link) const;

  const Machine& machine_;
  const World* world_;
  std::size_t ledgers_;
  std::uint32_t self_ = 1;
  Link* links_;
};

template <class Visit>
void Links::for_each(const Machine& machine, const Route& route, Visit&& visit) {
  Coords at = machine.coords_of(route.from_node);
  const Coords target = machine.coords_of(route.to_node);
  const PathCoords via =
      machine.path_coords(route.path, route.to_node).value_or(PathCoords{target[3], target[4], target[5]});
  const auto go = [&](std::size_t axis, std::uint8_t to) {
    const std::uint32_t along = machine.shape().at(axis);
    const std::uint32_t forward = (to + along - at.at(axis)) % along;
    const bool back = forward > along - forward;
    for (; at.at(axis) != to; at.at(axis) = static_cast<std::uint8_t>((at.at(axis) + (back ? along - 1 : 1)) % along))
      visit(LinkPlace{*machine.node_at(at.data()), static_cast<std::uint32_t>(2 * axis + (back ? 1 : 0))});
  };
  for (std::size_t axis = 3; axis < 6; ++axis) go(axis, via.at(axis - 3));
  for (std::size_t axis = 0; axis < 6; ++axis) go(axis, target.at(axis));
}

// The timing model: virtual times computed along the real run. When it is off, its functions do
// nothing and return 0.
//
// Each thread of the application has a clock. Its calls advance the clock by the processor's work,
// and a poll that finds something advances it at least to the time at which that was complete.
// Polls that find nothing cost no time: the time of a wait is known when it is over. VCQs
// and TNIs serve one request at a time, so threads that share a VCQ wait
// for each other. Packets carry the time of their arrival; messages that use the same link wait for
// each other there.
//
// With UTOFU_EMU_MODEL=2, polls that find nothing delay others. A thread that polls a VCQ in vain
// is assumed to queue for a lock around it, poll, and queue again. Whether the lock is fair or not,
// a thread that wants it has each spinner before it once on average. So a post waits for all of
// them. A poll that finds something waits for half of them, since what it finds came between two of
// its turns. A turn is the transfer of the lock's and the VCQ's lines to another core, the
// spinners' reads of the lock's line meanwhile, and a poll in vain. This describes a mutex around
// each call; for programs whose threads only try a lock it is too much.
//
// The numbers are in namespace model_parameters, above. The results are a model's estimate and must
// be called so wherever they are shown.
class Model {
 public:
  struct Sent {
    std::uint64_t left_ns = 0;     // the source has been read
    std::uint64_t arrives_ns = 0;  // all of it is at the target
  };

  struct Extent {
    bool on = false;
    bool spinners = false;
  };
  // `links`: not used when the model is off.
  Model(Extent extent, Links* links);
  [[nodiscard]] bool on() const { return on_; }

  // Caller: posts this many commands with one call. Returns when the first of them can start.
  std::uint64_t posted(EmulatedVcq& vcq, unsigned commands);
  // Caller: a poll of this handle has found something that was complete at `when_ns`.
  void polled(EmulatedVcq& vcq, std::uint64_t when_ns);
  // Caller: a poll of this handle has found nothing.
  void found_nothing(EmulatedVcq& vcq);
  // Any thread of the application: it has learned of something that was complete at `when_ns`.
  void learned(std::uint64_t when_ns) const;
  // Caller: has registered memory, or has deregistered it.
  void registered() { use_registry(model_parameters::kRegister); }
  void deregistered() { use_registry(model_parameters::kDeregister); }
  // The calling thread's clock.
  [[nodiscard]] static std::uint64_t now_ns();

  // Engine: executes a command that may start at `ready_ns` (posted, and in session mode released).
  Sent sent(const CqCommand& command, const Route& route, std::uint64_t ready_ns);
  // Engine of the target: the time at which the answer to a message of `arrived_ns` is back. A get
  // is answered in pieces of kMtu, of which this one begins at `offset`; of other answers only the
  // head counts.
  struct Piece {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
  };
  std::uint64_t answered(Opcode opcode, Piece piece, const Route& route, std::uint64_t arrived_ns);
  // Engine of the target: the time at which credits that arrived at `arrived_ns` release a command.
  std::uint64_t released(std::uint64_t arrived_ns) const;
  // Engine: the arrival of a signal from one gate to another.
  std::uint64_t signalled(const Route& route, std::uint64_t ready_ns);

  // Loads are invisible to the model. So a program that polls memory must say that it has seen what
  // it waited for (utofu_emu_model_saw). Engine: the memory was written by data that arrived at
  // that time. Caller: its thread has seen the memory's contents.
  void stored(const void* address, std::size_t bytes, std::uint64_t arrived_ns);
  void saw(const void* address);

  // Bytes on the wire of a message of `bytes` bytes in packets of up to `mtu`.
  [[nodiscard]] static std::uint64_t wire_bytes(std::uint64_t bytes, std::uint32_t mtu);

 private:
  // A thread that has made calls on a VCQ.
  struct User {
    std::uint64_t thread = 0;
    std::uint64_t in_vain_at = 0;  // VcqClock::useful + 1 at its last poll in vain; 0: none
    bool looked = false;           // it has polled in vain since it last found something
  };
  struct VcqClock {
    Calendar calendar;
    std::uint64_t last_thread = 0;
    std::uint64_t useful = 0;  // calls that posted or found something
    // in the order of their first calls: adjacent users are assumed to run on adjacent cores
    std::vector<User> users;
  };
  enum class Call : std::uint8_t { post, poll };
  struct Line {
    std::uintptr_t address = 0;
    std::uint64_t arrived_ns = 0;
  };
  static constexpr std::size_t kLineBytes = 64;
  static constexpr unsigned kLineBits = 14;
  static constexpr std::size_t kLines = std::size_t{1} << kLineBits;

  // Advances the thread's clock by the time for which the VCQ serves it.
  void use(EmulatedVcq& vcq, std::uint64_t cost, Call call);
  [[nodiscard]] VcqClock& clock_of(EmulatedVcq& vcq);
  [[nodiscard]] static std::size_t index_of(VcqClock& clock, std::uint64_t thread);
  // The time that user `me` waits for its turn.
  [[nodiscard]] static std::uint64_t turns(const VcqClock& clock, std::size_t me);
  void use_registry(std::uint64_t cost);
  [[nodiscard]] Line& line_of(std::uintptr_t line) { return lines_[(line * 0x9E3779B97F4A7C15U) >> (64 - kLineBits)]; }

  bool on_ = false;
  bool spinners_ = false;
  Links* links_;
  // Not on the fast path: with the model on, no path is fast.
  std::mutex mutex_;
  // index Vcq::model_clock - 1; the clock of a freed handle stays
  std::vector<VcqClock> vcqs_;
  std::vector<Ledger> registry_;  // one element; none when the model is off
  std::vector<Line> lines_;       // 2^14, by hash; a later one replaces an earlier one
};

}  // namespace tofu_emulator
