// The directory: questions and answers between ranks, and the part of a transport that carries them
// (Courier).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/network/lists.hpp"
#include "transport/network/wire.hpp"

namespace heddle::transport::network {

// The part of a transport that the directory uses: notes between the device workers of two ranks.
// All calls are made with the device's mutex.
class Courier {
 public:
  // Checks that the versions of the two ranks' libraries go together, and their providers. VERSION
  // or CONFIG; the message names both.
  [[nodiscard]] virtual base::Status check_card(const CardHead& card, std::uint32_t rank) const = 0;
  // Connects to the device worker of a rank; the rank's card has brought the address. It is called
  // until it does not return AGAIN for that rank. AGAIN: the rank may just have died. NO_MEMORY.
  // Another error: the reason.
  [[nodiscard]] virtual base::Status connect(std::uint32_t rank, std::span<const std::byte> address) = 0;
  // Sends a note, which it takes. AGAIN: not now, the note is still the caller's. PEER_FAILED: the
  // connection is broken, or there is none. It throws std::bad_alloc.
  [[nodiscard]] virtual base::Status send(std::uint32_t rank, Bytes* note) = 0;
  // Progress: notes that arrive are passed to Directory::note(), and connections that break are
  // passed to Directory::broken(). True: something has happened.
  virtual bool progress() = 0;
  // The helper calls it in each of its turns. It looks for events that are too rare to be looked
  // for in each progress().
  virtual void look() {}
  // The library will report the next arrival by the descriptor. False: something is there.
  [[nodiscard]] virtual bool arm() = 0;
  // Notes that the library has not finished.
  [[nodiscard]] virtual bool sending() const = 0;
  // Nothing is sent to the rank any more: its connection is closed. Not within progress().
  virtual void disconnect(std::uint32_t rank) = 0;
  // Connections are being closed. No descriptor reports their end.
  [[nodiscard]] virtual bool closes() const = 0;
  // A note of the transport's own has come, for a worker of this rank (Directory::tell()). False:
  // it is none.
  [[nodiscard]] virtual bool handshake(std::uint32_t rank, std::uint32_t worker, const std::byte* data,
                                       std::uint32_t bytes) {
    static_cast<void>(rank);
    static_cast<void>(worker);
    static_cast<void>(data);
    static_cast<void>(bytes);
    return false;
  }

 protected:
  Courier() = default;
  ~Courier() = default;
  Courier(const Courier&) = default;
  Courier& operator=(const Courier&) = default;
};

// Keys of regions that are asked for because they are longer than a packed region may be. With the
// device's mutex.
class KeyShelf {
 public:
  // The packed key of a region of this rank. Null: there is none.
  [[nodiscard]] virtual const Bytes* packed(std::uint64_t id) const = 0;
  // The answer of `rank`. Null: it has no such region.
  virtual void learn(std::uint32_t rank, std::uint64_t id, const std::byte* key, std::uint32_t bytes) = 0;
  // There was no memory for the answer: it is asked for again.
  virtual void ask_again(std::uint32_t rank, std::uint64_t id) = 0;

 protected:
  KeyShelf() = default;
  ~KeyShelf() = default;
  KeyShelf(const KeyShelf&) = default;
  KeyShelf& operator=(const KeyShelf&) = default;
};

class Device;

// Questions and answers between ranks: notes between the device workers, one of each rank, whose
// address is in the rank's card. Through it ranks ask each other, on demand, for the addresses of
// workers and the keys of regions, and tell each other of workers that were opened or closed after
// a rank had asked. No operation goes through it. Every thread that polls makes progress on it, and
// so does the helper, one thread at a time.
//
// The device's mutex guards it. Functions that may be called without the mutex say what they answer
// while another thread has it.
class Directory {
 public:
  Directory(Device& device, Courier& courier, KeyShelf* keys);

  // ---- any thread
  // A number may be taken once. RANK, STATE.
  [[nodiscard]] base::Status take_number(std::uint32_t worker);
  // Tells an open worker's address to ranks that ask, or have asked.
  void announce(std::uint32_t worker, Bytes address);
  // The address of a peer's worker; it stays where it is. Returns at once. AGAIN: the peer was
  // asked, or has not opened it yet, or another thread has the mutex. STATE: it was closed.
  // PEER_FAILED, CONFIG, VERSION, PROTOCOL.
  [[nodiscard]] base::Result<const Bytes*> address(std::uint32_t rank, std::uint32_t worker);
  // Sends a note of the transport's own to a worker of a rank whose address() is known: see
  // Courier::handshake(). AGAIN: another thread has the mutex, or there is no memory.
  [[nodiscard]] base::Status tell(std::uint32_t rank, std::uint32_t worker, std::span<const std::byte> bytes);
  // See Transport::check_peer().
  [[nodiscard]] base::Status check(std::uint32_t rank);
  // That worker of a peer was closed, as far as is known. False also while another thread has the
  // mutex.
  [[nodiscard]] bool known_closed(std::uint32_t rank, std::uint32_t worker);

  // ---- with the mutex
  void close(std::uint32_t worker);
  // The answer comes to the KeyShelf. AGAIN: its card has not arrived yet. PEER_FAILED, CONFIG,
  // VERSION, PROTOCOL.
  base::Status ask_key(std::uint32_t rank, std::uint64_t region);
  // Progress. True: something has happened.
  bool work();
  // Questions without an answer, or the answers, may be lost: callers that wait for an address ask
  // again.
  void forget_questions();
  // Notes are under way, which no descriptor reports.
  [[nodiscard]] bool talks() const { return courier_.sending() || !talking_.empty(); }
  [[nodiscard]] bool has_unsent() const;
  // Since the last take_learned(), an address or a key has arrived that workers may wait for, or a
  // note for one.
  [[nodiscard]] bool learned() const { return learned_; }
  void note_learned() { learned_ = true; }
  [[nodiscard]] bool take_learned() { return std::exchange(learned_, false); }
  // At the end: closes the connections. The caller then lets the courier make progress until it
  // closes none any more.
  void disconnect_all();

  // ---- for the courier, with the mutex
  // Something that wants an answer has come from that rank: connects to the rank, if that is
  // possible now.
  base::Status meet(std::uint32_t rank);
  // A note has arrived; it comes from the network. False: there is no memory for it, and its sender
  // does not ask again. The note must not be acknowledged.
  bool note(const std::byte* data, std::size_t bytes);
  // The connection to the rank broke, for a reason that the log tells.
  void broken(std::uint32_t rank, const char* why);

 private:
  enum class Known : std::uint8_t { nothing, asked, open, closed };
  struct Entry {
    Known known = Known::nothing;
    Bytes address;
    // As address() returns it.
    [[nodiscard]] base::Result<const Bytes*> result() const {
      if (known == Known::open) return &address;
      return known == Known::closed ? HEDDLE_ERR_STATE : HEDDLE_AGAIN;
    }
  };
  struct Rank {
    std::uint32_t rank = 0;
    bool met = false;  // its card has arrived and is valid
    base::Status rejected = HEDDLE_DONE;
    std::vector<Entry> workers;
    std::deque<Bytes> outbox;
  };
  // A worker of this rank.
  struct Own : Entry {
    bool taken = false;
    std::vector<std::uint32_t> asked;  // ranks to be told when it changes
    std::size_t unnotified = 0;        // how many of the first of them must still be told
  };

  Rank& known(std::uint32_t rank);
  base::Status meet(Rank& rank);
  base::Status introduce(const Rank& rank);
  [[nodiscard]] base::Status check(const bootstrap::Card& card, std::uint32_t rank) const;
  void say(std::uint32_t rank, Note note, const Bytes* bytes = nullptr);
  bool empty_outbox(Rank& rank);
  void drop(Rank& rank);
  void read(const Note& note, const std::byte* data);
  bool put_off(const Note& note);
  void answer(const Note& note);
  void answer_worker(const Note& note);
  void answer_key(const Note& note);
  void tell_state(std::uint32_t rank, std::uint32_t worker);
  void learn_worker(const Note& note, const std::byte* data);
  void learn_key(const Note& note, const std::byte* data);
  void tell_those_who_asked(std::uint32_t worker);
  void notify_the_rest();

  Device& device_;
  std::recursive_mutex& mutex_;  // the device's; guards what follows
  Courier& courier_;
  KeyShelf* const keys_;                      // null: no keys are asked for
  std::vector<std::unique_ptr<Rank>> ranks_;  // by rank; null: nothing is known
  std::size_t known_ranks_ = 0;
  std::vector<Rank*> talking_;  // with something in their outbox
  std::vector<Rank*> broken_;
  std::vector<Own> own_;
  bool unnotified_ = false;          // some rank may have to be told
  std::array<Note, 64> unanswered_;  // questions whose answer found no memory
  std::size_t unanswered_count_ = 0;
  bool version_told_ = false;
  bool learned_ = false;
  std::uint64_t malformed_ = 0;
};

}  // namespace heddle::transport::network
