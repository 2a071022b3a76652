// The rank's side of `heddle run`: a job of processes on one machine, brought together by their
// launcher.
//
// The launcher gives each process one end of a socket pair (HEDDLE_LOCAL_FD) with its rank and the
// size of the job (HEDDLE_LOCAL_RANK, HEDDLE_LOCAL_SIZE); nothing has a name in a file system.
// channel.hpp says what passes over it.
#pragma once

#include <mutex>
#include <thread>

#include "bootstrap/board.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/local/channel.hpp"

namespace heddle::bootstrap::local {

inline constexpr const char* kFdVariable = "HEDDLE_LOCAL_FD";
inline constexpr const char* kRankVariable = "HEDDLE_LOCAL_RANK";
inline constexpr const char* kSizeVariable = "HEDDLE_LOCAL_SIZE";

// True if any of the three variables is set: then this process is meant to be a rank, and open()
// says what is wrong.
bool started_by_launcher();

// Joins; blocks until the launcher has answered. Once per process, whatever the outcome.
// A rank whose launcher goes away is ended: it prints one line and exits. Errors: CONFIG (variables
// missing or not numbers), BOOTSTRAP (the descriptor is not the launcher's, the process has joined
// before, the launcher closed the connection), STATE (another living process that has the same
// descriptor has joined with it, and goes on undisturbed), VERSION, SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open();

// A rank's end of the launch protocol, whether the broker at the other end belongs to the launcher
// or to another rank.

struct Seat {
  int socket = -1;  // connected to the broker
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  bool passes_descriptors = true;  // the socket is a local one
  // How long the broker may take nothing of the bytes sent to it; then the connection counts as
  // broken. For a launcher there is no limit: a user may stop it, and its end ends this rank.
  std::int64_t send_timeout_ns = base::Timeout::kForever;
};

// What the broker has told.
struct Greeting {
  Welcome welcome;
  NodeBoard board;  // of the broker's machine; none if the socket passes no descriptors
};

// Says hello and waits for the broker's welcome. BOOTSTRAP (no answer, the connection was closed,
// somebody else answers), STATE (another process was greeted before), VERSION, PROTOCOL.
base::Result<Greeting> greet(const Seat& seat, Reader& reader);

// A rank after the greeting. Over a socket that passes no descriptors, cards are published and
// fetched without. One thread listens to what the broker sends. The socket stays the caller's.
class Member : public Bootstrap {
 public:
  Member(const Seat& seat, Greeting greeting, const JobSecret& secret, Reader reader);

  // Starts the thread that listens.
  base::Status start();

  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  [[nodiscard]] std::span<std::byte> board() override { return board_.bytes(); }
  [[nodiscard]] base::Status publish(const Card& card) override;
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override;
  void ask_ahead(std::uint32_t rank) override;
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return &card_bell_; }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override;
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override;
  [[nodiscard]] bool failed(std::uint32_t rank) const override {
    return rank < size_ && gone_[rank].load(std::memory_order_acquire);
  }
  void leave() override;
  [[nodiscard]] std::uint64_t watch_seconds() const override { return watch_seconds_; }
  [[nodiscard]] bool can_be_asked() const override { return true; }
  bool note_waiting() override;

 protected:
  // The broker has gone, or has broken the protocol, before this rank left. On the listening
  // thread, which ends after it.
  virtual void lost(const char* what, const char* why) = 0;

  // A derived class calls it in its destructor, since the thread may be in lost(). Nothing is sent
  // or received afterwards.
  void end();
  // False in a forked child, which must leave connection and thread alone.
  [[nodiscard]] bool is_own_process() const;

  // Only before anybody can have asked for the board.
  void set_board(NodeBoard board) { board_ = std::move(board); }
  base::Status send(Header header, std::span<const std::byte> payload, int fd = -1);
  // publish() of a card whose bytes may be longer by kMaxCardTail.
  base::Status publish_checked(const Card& card);
  // For a lost() that does not end the process: from now on every other rank counts as gone, and an
  // exchange fails because of `missing`.
  void count_all_gone(std::uint32_t missing);

 private:
  enum class Exchange { none, waiting, arrived };
  struct CardBox {
    enum class State { idle, asked, arrived };
    State state = State::idle;
    // a caller has got AGAIN for it, and may sleep on the bell of set_bell()
    bool awaited = false;
    // Once arrived.
    base::Fd fd;
    bool fd_lost = false;
    std::int32_t pid = 0;
    std::vector<std::byte> bytes;
  };

  base::Status ask(std::uint32_t rank);
  void disconnect();
  void serve();
  base::Status handle(Frame& frame);
  base::Status take_card(Frame& frame);
  base::Status take_result(const Frame& frame);
  base::Status take_gone(std::uint32_t rank);
  void tell_pulse(std::int32_t number);
  void tell_snapshot(std::int32_t number);
  void tell_counters(std::int32_t number);

  const int socket_;
  const bool passes_descriptors_;
  const std::int64_t send_timeout_ns_;
  const pid_t pid_;  // of the process that joined
  const std::uint32_t rank_;
  const std::uint32_t size_;
  const JobSecret secret_;
  const std::uint64_t watch_seconds_;
  NodeBoard board_;
  Reader reader_;  // the listening thread's
  std::thread thread_;
  // Release when raised, before failure_epoch_; partner: the acquire load in failed().
  std::unique_ptr<std::atomic<bool>[]> gone_;
  // Release when set, before the socket is shut down; partner: the acquire load of the listening
  // thread at its end.
  std::atomic<bool> closing_{false};

  queue::BellWords<> card_words_;
  const queue::Bell<> card_bell_{&card_words_};

  // one frame at a time; held while the socket takes a long one, so fetch() only tries it
  std::mutex send_mutex_;
  // guards what follows; never held for longer than a few instructions. May be held when
  // send_mutex_ is tried, not the other way round
  std::mutex mutex_;
  std::vector<CardBox> boxes_;
  Exchange exchange_ = Exchange::none;
  std::uint32_t missing_ = Gathered::kNobody;
  std::vector<std::vector<std::byte>> parts_;
  bool published_ = false;
  // the rank whose end made all others count as gone; set by count_all_gone()
  std::uint32_t keeper_ = Gathered::kNobody;
};

}  // namespace heddle::bootstrap::local
