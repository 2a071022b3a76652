// The port of the utofu transport, which is what a worker has of it: one VCQ. One thread at a time.
// Ports that share a CQ use it under the CQ's lock; a post or poll that finds the lock held does
// nothing.
//
// Messages go into a ring of slots in the receiver's block. A sender claims a ring once per pair of
// workers (PeerState at the sender, Ring at the receiver). The steps of the sender:
//   read the peer's directory entry (get) → claim a ring (armw add) → send the hello → put each
//   message into the next slot
// The receiver returns credit for half a ring at a time, by a put whose edata is the number of
// slots.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/registration_cache.hpp"
#include "transport/utofu/device.hpp"
#include "transport/utofu/operations.hpp"

namespace heddle::transport::utofu {

// A connection: messages of this worker to one worker of a peer.
struct PeerState {
  enum class Stage : std::uint8_t {
    unopened,  // the entry has to be read (again)
    reading,
    claim,  // the entry is known
    claiming,
    hello,  // we have a ring; the hello has to be sent
    ready,
    closed,  // the peer's worker was closed: messages to it are dropped
    broken   // every message completes with `status`
  };
  std::uint32_t index = 0;
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
  Stage stage = Stage::unopened;
  base::Status status = HEDDLE_DONE;
  utofu_vcq_id_t device_vcq = 0;
  utofu_stadd_t entry_stadd = 0;  // the peer's
  utofu_vcq_id_t vcq = 0;
  utofu_stadd_t block_stadd = 0;
  utofu_stadd_t ring_stadd = 0;
  std::uint32_t rings = 0;
  std::uint32_t slots = 0;
  std::uint32_t next = 0;     // slot
  std::uint32_t credits = 0;  // free slots
  // messages that were accepted before we had a ring: buffers first … last
  std::uint32_t waiting = 0;
  std::uint32_t first = kNoBuffer;
  std::uint32_t last = kNoBuffer;
  std::uint32_t starved = 0;  // calls of look_again() since credit came
  std::uint32_t pause = 0;    // polls between two reads of the entry
  std::uint64_t look_at = 0;  // the poll in which to read the entry again
  bool listed = false;        // it is in connecting_
  bool looking = false;       // the entry is being read again by look_again()
};

// Messages of one worker of a peer to this worker.
struct Ring {
  std::uint64_t next = 0;     // number of the next message to hand out
  std::uint32_t slot = 0;     // where that is: next % slots
  std::uint32_t arrived = 0;  // bit per slot
  std::uint32_t lent = 0;     // handed out by the last poll
  std::uint32_t owed = 0;     // slots that are free again and whose credit has not been returned
  bool greeted = false;
  bool queued = false;  // it is in ready_
  std::uint16_t worker = 0;
  std::uint32_t rank = 0;
  utofu_vcq_id_t vcq = 0;  // of the sender; 0: nothing has come yet
  utofu_stadd_t credit_stadd = 0;
  std::uint16_t length[kMostSlots] = {};
};

// Registers the program's memory with one VCQ. The caller holds the CQ's lock, if any. It does not
// wait: while another thread holds the set-up lock, registering returns AGAIN, and deregistering is
// put off (unless memory is exhausted).
class VcqRegistrar final : public memory::Registrar {
 public:
  VcqRegistrar(Library& library, const Vcq& vcq) : library_(library), vcq_(vcq) {}
  [[nodiscard]] base::Status register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                             std::uint64_t* handle) override;
  void deregister(std::uint64_t handle) override;
  // From now on registered memory stays registered until the VCQ is freed: commands under way may
  // use it.
  void leave() { leaves_ = true; }
  // Does the deregistrations that were put off; waits for the set-up lock.
  void finish();

 private:
  bool leaves_ = false;
  Library& library_;
  const Vcq vcq_;
  std::vector<std::uint64_t> later_;  // to be deregistered
};

class Port final : public TransportWorker {
 public:
  Port(Device& device, std::unique_ptr<OwnVcq> own_vcq, const Sizes& sizes, std::uint32_t index);
  ~Port() override;
  [[nodiscard]] base::Status announce();

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  void peer_failed(std::uint32_t rank) override;
  [[nodiscard]] bool closed(Target target) override;
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override;
  [[nodiscard]] PortCounters counters() const override { return {malformed_}; }

 private:
  struct Buffer {
    std::uint32_t next = kNoBuffer;  // free list, or the connection's waiting messages
    std::uint32_t bytes = 0;         // with the slot head
    Token token = 0;
  };
  // When operations under way to a failed rank fail, if the NIC has not answered.
  struct Doom {
    std::uint32_t rank;
    std::uint64_t at_ns;
  };
  class Out;

  static constexpr std::size_t kNone = ~std::size_t{0};
  // with so many in the backlog, no command is accepted
  static constexpr std::size_t kMostBacklog = 256;

  // transfer.cpp
  template <Task task>
  std::size_t post_again(Command& command);
  std::size_t post_all(std::span<Command> batch);
  template <class Begin>
  std::size_t each_of(std::span<Command> batch, Begin&& begin_one);
  std::size_t post_each(std::span<Command> batch);
  std::size_t post_carefully(std::span<Command> batch);
  template <Task task>
  void begin_quickly(Command& command, TofuOperation* operation, std::uint32_t rank);
  template <Task task, class Call>
  std::size_t post_quickly(Command& command, TofuOperation* operation, Call&& call);
  std::size_t not_posted(int code);
  std::size_t message_not_posted(PeerState& peer_state, int code);
  std::size_t post_message(Command& command);
  std::size_t post_long(PeerState& peer_state, Command& command);
  std::size_t post_word(Command& command);
  std::size_t post_short(Command& command);
  bool complete_at_post(Command& command, base::Status status);
  void set_careful(bool careful) {
    careful_ = careful;
    quick_size_ = careful || operations_.crowded() ? kNone : 1;
  }
  // DONE, POSTED, AGAIN (nothing happened) or the error with which the command completes.
  base::Status begin(Command& command);
  base::Status start(Command& command);
  base::Status transfer(Command& command);
  base::Status put_short(Command& command, Way target, TofuOperation* operation);
  base::Status transfer_registered(Command& command);
  [[nodiscard]] Way target_of(const Command& command) const;
  static bool inside(const Command& command);
  static base::Status reject_transfer(const Command& command);
  base::Status update(Command& command);
  base::Status take_back(int code, TofuOperation* operation);

  // send.cpp
  base::Status send(Command& command);
  base::Result<PeerState*> peer_state_to(std::uint32_t rank, std::uint32_t worker);
  base::Status send_on(PeerState& peer_state, Command& command);
  base::Status keep_waiting(PeerState& peer_state, Command& command);
  int write_slot(PeerState& peer_state, const std::byte* data, std::uint32_t bytes, std::uint32_t buffer, Token token);
  void advance_peer_states(Out& out);
  bool advance(PeerState& peer_state, Out& out);  // true: take it off connecting_
  bool send_waiting(PeerState& peer_state);
  void drop_first(PeerState& peer_state);
  void look_again(PeerState& peer_state);
  int connecting_step(PeerState& peer_state, TofuOperation* operation, int code);
  int read_entry(PeerState& peer_state);
  int claim(PeerState& peer_state);
  int greet(PeerState& peer_state);
  void entry_read(PeerState& peer_state);
  void claimed(PeerState& peer_state, std::uint64_t number);
  void break_off(PeerState& peer_state, base::Status status);
  void list(PeerState& peer_state);
  std::uint32_t take_buffer();
  void give_buffer(std::uint32_t buffer);
  [[nodiscard]] std::byte* buffer_data(std::uint32_t buffer) const;

  // receive.cpp
  void release_lent();
  void drain_tcq(Out& out);
  void drain_mrq(Out& out);
  template <bool crowded>
  void drain_all(Out& out);
  template <bool crowded>
  bool drain_plain(Out& out, utofu_mrq_notice* notice, int* code);
  void noticed(const utofu_mrq_notice& notice, int code, Out& out);
  void finished(TofuOperation* operation, int code, const utofu_mrq_notice& notice, Out& out);
  void orphan(TofuOperation& operation);
  void end_doomed();
  void note_dead();
  void leave_unfinished();
  base::Status outcome(const TofuOperation& operation, int code) const;
  void arrived(const utofu_mrq_notice& notice);
  void message_arrived(std::uint32_t end, utofu_vcq_id_t from);
  void credit_arrived(std::uint64_t end, const utofu_mrq_notice& notice);
  void hand_out(Out& out);
  void hand_out_ring(std::uint32_t number, Out& out);
  bool accept_hello(Ring& ring, const std::byte* slot, std::uint32_t length);
  void return_credits();
  void report_rejected_credit(const Ring& ring, int code);

  // The fields that every operation reads, kept together.
  const utofu_vcq_hdl_t handle_;
  CqLock* const lock_;
  const std::size_t way_;  // see target_of(): in bytes, of a table of ways
  // length of the batches that take a fast path: 1, or kNone if careful_ or the operations are
  // crowded
  std::size_t quick_size_;
  Command* posting_ = nullptr;  // noted by begin_quickly()
  // there is a lock, a rank has failed, or the backlog is not empty: see post()
  bool careful_;
  bool any_failed_ = false;
  // the TCQ has to be drained though no operation is under way: there was one when it was last
  // drained, or something was posted without one
  bool tcq_due_ = false;
  const Functions calls_;
  TofuOperations operations_;
  // the destructor resets it
  std::optional<memory::RegistrationCache> registrations_;

  Device& device_;
  std::unique_ptr<OwnVcq> own_vcq_;
  const Sizes sizes_;
  const std::uint32_t index_;
  VcqRegistrar registrar_;
  // by rank, then worker; a rank's row is empty until the first message to it
  std::vector<std::vector<PeerState*>> peer_state_of_;
  std::vector<std::unique_ptr<PeerState>> peer_states_;
  std::vector<PeerState*> connecting_;
  std::vector<Buffer> buffers_;
  std::uint32_t free_buffer_ = kNoBuffer;
  std::uint32_t free_buffers_ = 0;
  std::vector<Ring> rings_;
  std::vector<std::uint32_t> ready_;    // rings with a message at their head
  std::vector<std::uint32_t> lending_;  // rings with lent slots
  std::vector<std::uint32_t> owing_;    // rings whose credit could not be sent
  std::vector<std::uint8_t> failed_;    // by rank
  std::vector<Doom> dooms_;             // of failed ranks
  std::vector<Completion> backlog_;     // completions for the next poll
  std::uint64_t polls_ = 0;
  std::uint64_t malformed_ = 0;
  bool credit_rejected_ = false;  // by the library, and that was logged
};

// The work of the fast paths before they call uTofu. `operation`: the first free one.
template <Task task>
[[gnu::always_inline]] inline void Port::begin_quickly(Command& command, TofuOperation* operation, std::uint32_t rank) {
  TofuOperations::begin(operation, task);
  operation->token = command.token;
  operation->rank = rank;
  posting_ = &command;
}

}  // namespace heddle::transport::utofu
