// The timing model: virtual times computed along the real run. When it is off, its functions do
// nothing and return 0.
//
// Each thread of the application has a clock. Its calls advance the clock by the processor's work,
// and a poll that finds something advances it at least to the time at which that was complete.
// Polls that find nothing cost no time: the time of a wait is known when it is over. VCQs
// (calendar.hpp) and TNIs (links.hpp) serve one request at a time, so threads that share a VCQ wait
// for each other. Packets carry the time of their arrival; messages that use the same link wait for
// each other there (links.hpp).
//
// With UTOFU_EMU_MODEL=2, polls that find nothing delay others. A thread that polls a VCQ in vain
// is assumed to queue for a lock around it, poll, and queue again. Whether the lock is fair or not,
// a thread that wants it has each spinner before it once on average. So a post waits for all of
// them. A poll that finds something waits for half of them, since what it finds came between two of
// its turns. A turn is the transfer of the lock's and the VCQ's lines to another core, the
// spinners' reads of the lock's line meanwhile, and a poll in vain. This describes a mutex around
// each call; for programs whose threads only try a lock it is too much.
//
// The numbers are in model_parameters.hpp. The results are a model's estimate and must be called so
// wherever they are shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tofu/emulator/calendar.hpp"
#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/ledger.hpp"
#include "tofu/emulator/links.hpp"
#include "tofu/emulator/model_parameters.hpp"
#include "tofu/emulator/vcq.hpp"

namespace tofu_emulator {

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
  std::uint64_t posted(Vcq& vcq, unsigned commands);
  // Caller: a poll of this handle has found something that was complete at `when_ns`.
  void polled(Vcq& vcq, std::uint64_t when_ns);
  // Caller: a poll of this handle has found nothing.
  void found_nothing(Vcq& vcq);
  // Any thread of the application: it has learned of something that was complete at `when_ns`.
  void learned(std::uint64_t when_ns) const;
  // Caller: has registered memory, or has deregistered it.
  void registered() { use_registry(model_parameters::kRegister); }
  void deregistered() { use_registry(model_parameters::kDeregister); }
  // The calling thread's clock.
  [[nodiscard]] static std::uint64_t now_ns();

  // Engine: executes a command that may start at `ready_ns` (posted, and in session mode released).
  Sent sent(const Command& command, const Route& route, std::uint64_t ready_ns);
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
  void use(Vcq& vcq, std::uint64_t cost, Call call);
  [[nodiscard]] VcqClock& clock_of(Vcq& vcq);
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
