// The timing model: virtual times that are carried along the real run. All of it does nothing, and
// says 0, when it is off.
//
// Each thread of the application has a clock, which its calls advance: what the processor does in
// them, and for a poll that finds something up to the time at which that was complete. Polls that
// find nothing cost the thread nothing: the time of a wait is known when it is over. VCQs
// (calendar.hpp) and TNIs (links.hpp) serve one at a time, so threads that share a VCQ wait for
// each other. Packets carry the time of their arrival; messages that go over the same link wait for
// each other there (links.hpp).
//
// With UTOFU_EMU_MODEL=2 polls that find nothing hold up others: a thread that polls a VCQ in vain
// is taken for one that queues for a lock around it, polls, and queues again. Fair or by chance,
// whoever wants the lock has each of them before it once on average: a post waits for all of them,
// a poll that finds something for half, since what it finds came somewhere between two of its
// turns. A turn is the lock's and the VCQ's lines moving to another core, whoever spins reading the
// lock's line meanwhile, and a poll in vain. That is what a mutex around each call does; where a
// program's threads try a lock and go on it is too much.
//
// The numbers are in model_parameters.hpp. What comes out is a model's guess, and has to be called
// so wherever it is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "utofu/calendar.hpp"
#include "utofu/descriptor.hpp"
#include "utofu/ledger.hpp"
#include "utofu/links.hpp"
#include "utofu/model_parameters.hpp"
#include "utofu/vcq.hpp"

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
  // `links`: not asked when it is off.
  Model(Extent extent, Links* links);
  [[nodiscard]] bool on() const { return on_; }

  // Caller: posts so many commands with one call; when the first of them can start.
  std::uint64_t posted(Vcq& vcq, unsigned commands);
  // Caller: a poll of this handle has found something that was complete at `when_ns`.
  void polled(Vcq& vcq, std::uint64_t when_ns);
  // Caller: a poll of this handle has found nothing.
  void found_nothing(Vcq& vcq);
  // Any thread of the application: it knows of something that was complete at `when_ns`.
  void learned(std::uint64_t when_ns) const;
  // Caller: has registered memory, or has given a registration back.
  void registered() { use_registry(model_parameters::kRegister); }
  void deregistered() { use_registry(model_parameters::kDeregister); }
  // The calling thread's clock.
  [[nodiscard]] static std::uint64_t now_ns();

  // Engine: a command that may start at `ready_ns` (posted, and in session mode released) is
  // executed now.
  Sent sent(const Command& command, const Route& route, std::uint64_t ready_ns);
  // Engine of the target: the answer to what arrived at `arrived_ns`; when it is back. A get is
  // answered in pieces of kMtu, of which this is the one at `offset`; of other answers only the
  // head counts.
  struct Piece {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
  };
  std::uint64_t answered(Opcode opcode, Piece piece, const Route& route, std::uint64_t arrived_ns);
  // Engine of the target: from the arrival of a message with credits to the command that they
  // release.
  std::uint64_t released(std::uint64_t arrived_ns) const;
  // Engine: from one gate to another.
  std::uint64_t signalled(const Route& route, std::uint64_t ready_ns);

  // Loads cannot be seen, so a program that polls memory has to say that it has seen what it waited
  // for (utofu_emu_model_saw). Engine: this was written by what arrived then. Caller: its thread
  // has seen what is there.
  void stored(const void* address, std::size_t bytes, std::uint64_t arrived_ns);
  void saw(const void* address);

  // Bytes on the wire of a message of so many bytes in packets of up to `mtu`.
  [[nodiscard]] static std::uint64_t wire_bytes(std::uint64_t bytes, std::uint32_t mtu);

 private:
  // A thread that has called on a VCQ.
  struct User {
    std::uint64_t thread = 0;
    std::uint64_t in_vain_at = 0;  // VcqClock::useful + 1 at its last poll in vain; 0: it never did
    bool looked = false;           // it has polled in vain since it last found something
  };
  struct VcqClock {
    Calendar calendar;
    std::uint64_t last_thread = 0;
    std::uint64_t useful = 0;  // calls that posted or found something
    // in the order of their first calls: neighbours are taken to be on neighbouring cores
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

  // The thread's clock moves over the time that the VCQ serves it.
  void use(Vcq& vcq, std::uint64_t cost, Call call);
  [[nodiscard]] VcqClock& clock_of(Vcq& vcq);
  [[nodiscard]] static std::size_t index_of(VcqClock& clock, std::uint64_t thread);
  // How long user `me` waits for its turn.
  [[nodiscard]] static std::uint64_t turns(const VcqClock& clock, std::size_t me);
  void use_registry(std::uint64_t cost);
  [[nodiscard]] Line& line_of(std::uintptr_t line) { return lines_[(line * 0x9E3779B97F4A7C15U) >> (64 - kLineBits)]; }

  bool on_ = false;
  bool spinners_ = false;
  Links* links_;
  // Off the fast way: with the model on, nothing is fast.
  std::mutex mutex_;
  // by Vcq::model_clock; a handle that is freed leaves its clock behind
  std::vector<VcqClock> vcqs_;
  std::vector<Ledger> registry_;  // one; none when it is off
  std::vector<Line> lines_;       // 2^14, by hash; a later one takes the place of an earlier one
};

}  // namespace tofu_emulator
