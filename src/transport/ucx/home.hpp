// What the workers of one rank share: UCX's context, the home worker, the regions, and what is known of the peers.
//
// The home worker is the one whose address is in the rank's card. Ranks ask each other through it, as they need it, for the addresses
// of workers and the keys of regions, and tell each other of workers that were opened or closed after somebody had asked. No
// operation goes through it. Whoever polls moves it on, and so does the helper, one thread at a time; no operation waits for that: what
// it is asked while another thread has it is AGAIN.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/ucx/helper.hpp"
#include "transport/ucx/library.hpp"
#include "transport/ucx/wire.hpp"

namespace heddle::transport::ucx {

class Station;

using Bytes = std::vector<std::byte>;

// DONE: UCX has said yes. Otherwise what its answer means here, without a message.
base::Status meaning_of(ucs_status_t status);

class Home {
 public:
  static base::Result<std::unique_ptr<Home>> create(bootstrap::Bootstrap& bootstrap,
                                                    const base::Environment& environment);
  ~Home();

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint32_t window() const { return window_; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return secret_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  // UCX tells of connections that break, and can cut them off. Not so over its own shared memory in 1.13: there the bootstrap's news
  // of who has died must do.
  [[nodiscard]] bool recovers() const { return recovers_; }
  [[nodiscard]] ucs_status_t connect(ucp_worker_h worker, const void* address, ucp_err_handler_cb_t broken, void* arg,
                                     ucp_ep_h* endpoint) const;
  // Dead or gone, or not to be reached any more.
  [[nodiscard]] bool failed(std::uint32_t rank) const;
  // A connection of a worker to it is no more, or that of the home; the first time counts. Any thread.
  void lose(std::uint32_t rank) {
    std::uint32_t not_yet = 0;
    if (lost_[rank].load(std::memory_order_relaxed) != 0) return;
    lost_[rank].compare_exchange_strong(not_yet, losses_.fetch_add(1, std::memory_order_relaxed) + 1,
                                        std::memory_order_relaxed);
  }
  // See Transport::lost().
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const { return lost_[rank].load(std::memory_order_relaxed); }

  // By the helper, now and then: gives up what was lost already the last time and has not died or left by now.
  void give_up_lost();
  // See Transport::given_up().
  [[nodiscard]] bool given_up(std::uint32_t rank) const {
    return losses_of_[rank].load(std::memory_order_acquire) == Loss::given_up;
  }

  // A number may be taken once. RANK, STATE.
  [[nodiscard]] base::Status take_number(std::uint32_t worker);
  // Shows an open worker to who asks, and has asked.
  [[nodiscard]] base::Status announce(std::uint32_t worker, Bytes address);
  // The worker is closed to who asks; what it has accepted still leaves.
  void close(std::uint32_t worker, std::unique_ptr<Station> station);

  // The address of a peer's worker; it stays where it is. Returns at once. AGAIN: asked for, or nobody has opened it yet. STATE: it was
  // closed. PEER_FAILED, CONFIG, VERSION, PROTOCOL.
  [[nodiscard]] base::Result<const Bytes*> address(std::uint32_t rank, std::uint32_t worker);
  // That worker of a peer was closed, as far as is known.
  [[nodiscard]] bool known_closed(std::uint32_t rank, std::uint32_t worker);
  // The packed key of an imported region. AGAIN. RANGE: its owner has withdrawn it, or it was released here.
  [[nodiscard]] base::Result<Bytes> key(std::uint64_t import, std::uint64_t generation);

  // Any thread, often. One thread does it, the others return.
  void progress();
  [[nodiscard]] Helper& helper() { return helper_; }
  struct Served {
    bool moving = false;   // something is under way that no descriptor tells of
    bool learned = false;  // what workers may have waited for
  };
  // By the helper: progress on the home worker and on closed workers, which are then armed.
  [[nodiscard]] Served serve();

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  [[nodiscard]] base::Result<LocalMemory> enroll(void* address, std::uint64_t bytes);
  void withdraw(std::uint64_t id);
  // handle: [0] number of the import, [1] its generation, [2] address in the owner. Imports of one region share the first two, so that its
  // key is unpacked once.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const KeyBytes& key);
  void release(const RemoteMemory& memory);
  // False: it was released.
  [[nodiscard]] bool import_is(std::uint64_t import, std::uint64_t generation);
  // Changes whenever an import is released.
  [[nodiscard]] const std::atomic<std::uint64_t>& releases() const { return releases_; }

 private:
  enum class Loss : std::uint8_t { none, seen, given_up };
  enum class Known : std::uint8_t { nothing, asked, open, closed };
  struct Entry {
    Known known = Known::nothing;
    Bytes address;
  };
  struct Peer {
    std::uint32_t rank = 0;
    Home* home = nullptr;
    bool met = false;  // its card is here, and good
    base::Status refused = HEDDLE_DONE;
    std::uint64_t tried_since = 0;  // ns; 0: not yet
    ucp_ep_h endpoint = nullptr;
    std::vector<Entry> workers;
    std::deque<Bytes> outbox;
  };
  // A worker of this rank.
  struct Own {
    Known known = Known::nothing;
    bool taken = false;
    Bytes address;
    std::vector<std::uint32_t> asked;  // ranks to be told when it changes
    std::size_t untold = 0;            // so many of the first of them are still to be told
  };
  struct Region {
    ucp_mem_h memory = nullptr;
    Bytes packed;
  };
  struct Import {
    std::uint64_t generation = 0;
    std::uint64_t uses = 0;  // imports of the same region
    std::uint32_t rank = 0;
    std::uint64_t id = 0;
    Known known = Known::nothing;
    Bytes packed;
  };

  Home(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library);
  base::Status set_up();
  base::Status configure(ucp_config_t* config);
  [[nodiscard]] base::Status no_worker(ucs_status_t status) const;
  base::Status open_home_worker();
  base::Status publish();
  base::Result<LocalMemory> enter(ucp_mem_h memory, void* address, std::uint64_t bytes);

  // directory.cpp; all with mutex_ held
  template <class T>
  static void make_room(std::vector<T>* list, std::size_t count) {
    if (list->capacity() < count) list->reserve(2 * count);
  }
  static ucs_status_t on_note(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_broken(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  void read_note(const Note& note, const std::byte* data);
  void put_off(const Note& note);
  void answer_worker(const Note& note);
  void answer_key(const Note& note);
  void learn_worker(const Note& note, const std::byte* data);
  void learn_key(const Note& note, const std::byte* data);
  Peer& peer(std::uint32_t rank);
  base::Status meet(Peer& peer);
  base::Status introduce(Peer& peer);
  base::Status reach(Peer& peer, const void* address);
  [[nodiscard]] base::Status check_versions(const CardHead& theirs, std::uint32_t rank) const;
  void say(std::uint32_t rank, Note note, const Bytes& bytes);
  bool empty_outbox(Peer& peer);
  void tell_those_who_asked(std::uint32_t worker);
  void tell_the_untold();
  bool linger();  // true: something moves on still
  bool work();    // true: something has happened
  [[nodiscard]] bool arm_all();
  void drop(Peer& peer);
  [[nodiscard]] bool has_unsent() const;
  base::Status probe(const void* address);
  void end_probe(ucp_worker_h worker);
  void leave();
  void end_endpoints();
  struct Flush {
    ucp_worker_h worker;
    void* request;
    bool ended;
  };
  std::vector<Flush> flush_all();
  void take_down();

  bootstrap::Bootstrap& bootstrap_;
  const std::uint32_t rank_;  // here, for the way of an operation
  const std::uint32_t size_;
  const base::Environment& environment_;
  const Library* library_;
  const Functions& call_;
  const std::uint32_t max_workers_;
  const std::uint32_t window_;
  const bootstrap::JobSecret secret_;
  const Agreed agreed_;
  ucp_context_h context_ = nullptr;
  bool recovers_ = true;
  bool buried_ = false;                           // a worker is left to the process, and so must be the context
  std::vector<std::atomic<bool>> unreachable_;    // by rank: its connection broke. Relaxed: nothing is read by it
  std::vector<std::atomic<std::uint32_t>> lost_;  // by rank: how many were lost when it was; 0: it is not. Relaxed
  std::atomic<std::uint32_t> losses_{0};          // how many so far, for their order. Relaxed
  std::vector<std::atomic<Loss>> losses_of_;      // by rank; written by the helper (release), read by workers (acquire)
  std::atomic<std::uint64_t> releases_{0};  // relaxed, as Station::after_progress reads it: a late look does no harm

  // Guards what follows; on the way of an operation only tried. Recursive: closed workers, which it guards, ask for addresses.
  std::recursive_mutex mutex_;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: nothing is known
  std::size_t known_peers_ = 0;
  std::vector<Peer*> talking_;  // with something in their outbox
  std::vector<Own> own_;
  bool untold_ = false;              // there may be somebody to be told
  std::array<Note, 64> unanswered_;  // questions that there was no memory for
  std::size_t unanswered_count_ = 0;
  std::vector<std::unique_ptr<Station>> closed_;
  std::uint32_t sending_ = 0;  // notes that UCX has not done with
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_region_ = 1;
  std::vector<Import> imports_;
  std::vector<std::uint64_t> free_imports_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> import_of_;  // by rank and region
  std::uint64_t next_generation_ = 1;
  std::vector<void*> closing_;  // requests of endpoints
  std::vector<Peer*> broken_;
  bool version_told_ = false;
  bool learned_ = false;  // an address or a key, since serve() has said so
  std::uint64_t malformed_ = 0;

  Helper helper_;  // takes mutex_
};

}  // namespace heddle::transport::ucx
