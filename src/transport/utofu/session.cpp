#include "transport/utofu/session.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "transport/utofu/library.hpp"
#include "transport/utofu/out.hpp"

namespace heddle::transport::utofu {
namespace {

constexpr std::uint32_t kMostCredits = 15;  // SPS is a field of 4 bits
constexpr std::size_t kSlotWords = 4;
constexpr std::size_t kMostDescriptor = 64;

struct KeyOfQueue {
  std::uint64_t vcq = 0;
  std::uint64_t word = 0;    // STADD of the word to which credits alone are put
  std::uint64_t memory = 0;  // STADD
  std::uint64_t bytes = 0;   // of the memory
  std::uint64_t seal = 0;
};
static_assert(sizeof(KeyOfQueue) == kSessionKeyBytes);

base::Status status_of(int code) {
  if (code == UTOFU_ERR_MRQ_PEER) return base::fail(HEDDLE_ERR_PEER_FAILED, "a put of a session queue met no peer");
  return base::fail(HEDDLE_ERR_SYSTEM, "a command of a session queue has failed: %s (%d)", error_name(code), code);
}

// Codes of poll_tcq and poll_mrq that come with a record: a command failed, a notice reports a
// failure. Other errors come without a record.
bool is_of_command(int code) {
  return code <= UTOFU_ERR_TCQ_OTHER && code >= UTOFU_ERR_TCQ_LENGTH;
}
bool is_of_notice(int code) {
  return code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH;
}

// Peers may still write to the words of abandoned queues, and the NIC may still read them.
struct Kept {
  Pages words;
  std::vector<std::unique_ptr<FreeEnd>> ends;
};

// A queue's commands as prepared descriptors.
struct Commands {
  std::vector<std::uint64_t> slots;  // kSlotWords each
  std::size_t posted = 0;            // words that are posted in this run
  [[nodiscard]] bool all_posted() const { return posted == slots.size(); }
};

struct Queue {
  Vcq vcq;
  bool open = false;  // it has a VCQ
  utofu_stadd_t words = 0;
  utofu_stadd_t memory = 0;
  Commands commands;
  bool ended = true;
};

class UtofuSession final : public Session {
 public:
  UtofuSession(Sessions& sessions, std::span<std::byte> memory)
      : sessions_(sessions),
        library_(sessions.device().library()),
        call_(library_.call()),
        memory_(memory),
        free_end_(std::make_unique<FreeEnd>()) {}
  ~UtofuSession() override;
  base::Status add_queues(std::span<const std::uint32_t> links);

  [[nodiscard]] SessionKey key(std::uint32_t queue) const override;
  [[nodiscard]] base::Status bind(std::span<const SessionCommand> commands) override;
  void start() override;
  [[nodiscard]] base::Status poll() override;
  void leave() override { left_ = true; }

 private:
  base::Status open_queue(Queue& queue, std::uint32_t link);
  base::Status check(const SessionCommand& command) const;
  base::Status key_of(const SessionKey& key, KeyOfQueue* name) const;
  base::Status prepare(const SessionCommand& command, bool last);
  base::Status reach_memory_from_plain();
  void post_queue(Queue& queue);
  void post_free();
  bool poll_queue(Queue& queue);
  bool poll_free();
  void fail(int code) {
    if (status_ == HEDDLE_DONE) status_ = status_of(code);
  }

  Sessions& sessions_;
  Library& library_;
  const Functions call_;
  const std::span<std::byte> memory_;
  std::vector<Queue> queues_;
  Commands free_;
  bool free_ended_ = true;
  std::unique_ptr<FreeEnd> free_end_;  // of the last post_free()
  utofu_stadd_t plain_memory_ = 0;     // 0: no command of the free queue reads it
  bool left_ = false;
  base::Status status_ = HEDDLE_DONE;
};

UtofuSession::~UtofuSession() {
  if (left_) {
    sessions_.keep(std::move(free_end_));
    return;
  }
  for (const Queue& queue : queues_) {
    if (!queue.open) continue;
    if (queue.memory != 0) library_.deregister(queue.vcq, queue.memory);
    if (queue.words != 0) library_.deregister(queue.vcq, queue.words);
    library_.destroy(queue.vcq);
  }
  if (plain_memory_ == 0) return;
  const CqGuard guard(sessions_.plain());
  library_.deregister(sessions_.plain(), plain_memory_);
}

// Queues that want a certain TNI come first, so that the others do not take its VCQs.
base::Status UtofuSession::add_queues(std::span<const std::uint32_t> links) {
  queues_.resize(links.size());
  for (const bool any : {false, true}) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      if ((links[i] == SessionQueues::kAnyLink) != any) continue;
      if (const base::Status status = open_queue(queues_[i], links[i]); status != HEDDLE_DONE) return status;
    }
  }
  return HEDDLE_DONE;
}

base::Status UtofuSession::open_queue(Queue& queue, std::uint32_t link) {
  const std::uint64_t most = sessions_.device().environment().config.number(base::Var::utofu_sessions);
  const std::optional<std::uint32_t> tni =
      link == SessionQueues::kAnyLink ? std::nullopt : std::optional<std::uint32_t>(link);
  auto vcq = library_.create_session(most, tni);
  if (!vcq) return vcq.status();
  queue.vcq = *vcq;
  queue.open = true;
  auto words = library_.register_memory(queue.vcq, sessions_.words(), Sessions::kWordBytes);
  if (!words) return words.status();
  queue.words = *words;
  if (memory_.empty()) return HEDDLE_DONE;
  auto memory = library_.register_memory(queue.vcq, memory_.data(), memory_.size());
  if (!memory) return memory.status();
  queue.memory = *memory;
  return HEDDLE_DONE;
}

SessionKey UtofuSession::key(std::uint32_t queue) const {
  const Queue& named = queues_[queue];
  KeyOfQueue name{named.vcq.id, named.words + Sessions::kTo, named.memory, memory_.size(), 0};
  seal(&name, sessions_.device().secret());
  SessionKey key;
  std::memcpy(key.bytes.data(), &name, sizeof name);
  return key;
}

base::Status UtofuSession::key_of(const SessionKey& key, KeyOfQueue* name) const {
  std::memcpy(name, key.bytes.data(), sizeof *name);
  if (sealed(*name, sessions_.device().secret())) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes are not the key of a session queue of this job");
}

base::Status UtofuSession::check(const SessionCommand& command) const {
  if (command.queue != SessionCommand::kFreeQueue && command.queue >= queues_.size()) {
    return base::fail(HEDDLE_ERR_RANGE, "a command for queue %u of %zu", command.queue, queues_.size());
  }
  const std::uint64_t bytes = memory_.size();
  if (command.source > bytes || command.bytes > bytes - command.source || command.bytes > kMostTransfer ||
      command.credits > kMostCredits) {
    return base::fail(
        HEDDLE_ERR_RANGE,
        "a put of %llu bytes at %llu with %u credits; there are %llu bytes, a put takes %llu and %u credits",
        static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(command.source),
        command.credits, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(kMostTransfer),
        kMostCredits);
  }
  if (command.target == nullptr) return HEDDLE_DONE;
  KeyOfQueue name;
  if (const base::Status status = key_of(*command.target, &name); status != HEDDLE_DONE) return status;
  if (command.destination <= name.bytes && command.bytes <= name.bytes - command.destination) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_RANGE, "a put of %llu bytes to %llu of a queue's memory of %llu bytes",
                    static_cast<unsigned long long>(command.bytes),
                    static_cast<unsigned long long>(command.destination), static_cast<unsigned long long>(name.bytes));
}

base::Status UtofuSession::reach_memory_from_plain() {
  const CqGuard guard(sessions_.plain());
  auto memory = library_.register_memory(sessions_.plain(), memory_.data(), memory_.size());
  if (!memory) return memory.status();
  plain_memory_ = *memory;
  return HEDDLE_DONE;
}

base::Status UtofuSession::prepare(const SessionCommand& command, bool last) {
  const bool free = command.queue == SessionCommand::kFreeQueue;
  if (free && command.bytes > 0 && plain_memory_ == 0) {
    if (const base::Status status = reach_memory_from_plain(); status != HEDDLE_DONE) return status;
  }
  const Vcq& vcq = free ? sessions_.plain() : queues_[command.queue].vcq;
  Commands& commands = free ? free_ : queues_[command.queue].commands;
  std::uint64_t descriptor[kMostDescriptor / sizeof(std::uint64_t)] = {};
  std::size_t size = 0;
  const unsigned long told = last ? UTOFU_ONESIDED_FLAG_TCQ_NOTICE : 0UL;
  int code = UTOFU_SUCCESS;
  const CqGuard guard(vcq);
  if (command.target == nullptr) {
    code = call_.prepare_nop(vcq.handle, told, descriptor, &size);
  } else {
    KeyOfQueue name;
    if (const base::Status status = key_of(*command.target, &name); status != HEDDLE_DONE) return status;
    const bool data = command.bytes > 0;
    const utofu_stadd_t words = free ? sessions_.plain_words() : queues_[command.queue].words;
    const utofu_stadd_t memory = free ? plain_memory_ : queues_[command.queue].memory;
    const unsigned long flags =
        UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_SPS(std::uint64_t{command.credits}) | told;
    code = call_.prepare_put(vcq.handle, name.vcq, data ? memory + command.source : words + Sessions::kFrom,
                             data ? name.memory + command.destination : name.word,
                             data ? command.bytes : sizeof(std::uint64_t), 0, flags, descriptor, &size);
  }
  if (code != UTOFU_SUCCESS) {
    return base::fail(HEDDLE_ERR_SYSTEM, "a command of a session queue cannot be prepared: %s (%d)", error_name(code),
                      code);
  }
  if (size != kSlotWords * sizeof(std::uint64_t)) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "a command of a session queue takes %zu bytes, so more than one credit",
                      size);
  }
  commands.slots.insert(commands.slots.end(), descriptor, descriptor + kSlotWords);
  return HEDDLE_DONE;
}

base::Status UtofuSession::bind(std::span<const SessionCommand> commands) {
  for (const SessionCommand& command : commands) {
    if (const base::Status status = check(command); status != HEDDLE_DONE) return status;
  }
  std::vector<const SessionCommand*> last(queues_.size() + 1);
  const auto place = [&](const SessionCommand& command) {
    return std::min<std::size_t>(command.queue, queues_.size());
  };
  for (const SessionCommand& command : commands) last[place(command)] = &command;
  for (const SessionCommand& command : commands) {
    const base::Status status = prepare(command, last[place(command)] == &command);
    if (status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

// Posts as many of the remaining commands as there are slots; later polls post the others.
void UtofuSession::post_queue(Queue& queue) {
  Commands& commands = queue.commands;
  std::size_t words = commands.slots.size() - commands.posted;
  while (words > 0) {
    const int code = call_.post_toq(queue.vcq.handle, commands.slots.data() + commands.posted,
                                    words * sizeof(std::uint64_t), nullptr);
    if (code == UTOFU_SUCCESS) {
      commands.posted += words;
      words = commands.slots.size() - commands.posted;
      continue;
    }
    // more than the queue can ever hold
    const bool too_many = code == UTOFU_ERR_INVALID_DESC && words > kSlotWords;
    if (code != UTOFU_ERR_BUSY && !too_many) {
      fail(code);
      return;
    }
    if (commands.posted == 0) sessions_.rejected(words / kSlotWords);
    words = words / kSlotWords / 2 * kSlotWords;
  }
}

// Likewise; parts of other Sessions may come between its own parts.
void UtofuSession::post_free() {
  std::size_t words = free_.slots.size() - free_.posted;
  while (words > 0) {
    const int code = sessions_.post_plain(std::span(free_.slots).subspan(free_.posted, words), free_end_.get());
    if (code == UTOFU_SUCCESS) {
      free_.posted += words;
      words = free_.slots.size() - free_.posted;
      continue;
    }
    const bool too_many = code == UTOFU_ERR_INVALID_DESC && words > kSlotWords;
    if (code != UTOFU_ERR_BUSY && !too_many) {
      fail(code);
      return;
    }
    words = words / kSlotWords / 2 * kSlotWords;
  }
}

// The free queue comes last: its commands release peers, which may release commands of the other
// queues here at once.
void UtofuSession::start() {
  for (Queue& queue : queues_) {
    queue.commands.posted = 0;
    queue.ended = queue.commands.slots.empty();
    if (!queue.ended) post_queue(queue);
  }
  free_.posted = 0;
  free_ended_ = free_.slots.empty();
  if (free_ended_) return;
  // Before its commands can end.
  free_end_->code.store(FreeEnd::kUnderWay, std::memory_order_relaxed);
  post_free();
}

// True: it has ended.
bool UtofuSession::poll_queue(Queue& queue) {
  void* tag = nullptr;
  const int code = call_.poll_tcq(queue.vcq.handle, 0, &tag);
  if (code == UTOFU_SUCCESS) {
    queue.ended = true;
    return true;
  }
  if (code != UTOFU_ERR_NOT_FOUND) fail(code);
  if (!queue.commands.all_posted()) post_queue(queue);
  utofu_mrq_notice notice{};
  const int came = call_.poll_mrq(queue.vcq.handle, 0, &notice);
  if (came != UTOFU_ERR_NOT_FOUND && came != UTOFU_SUCCESS) fail(came);
  return false;
}

bool UtofuSession::poll_free() {
  int code = free_end_->code.load(std::memory_order_acquire);
  if (code == FreeEnd::kUnderWay) {
    const int polled = sessions_.poll_plain();
    code = free_end_->code.load(std::memory_order_acquire);
    if (code == FreeEnd::kUnderWay && polled < 0) code = polled;
  }
  if (code < 0) fail(code);
  if (code == FreeEnd::kUnderWay && !free_.all_posted()) post_free();
  free_ended_ = code == UTOFU_SUCCESS;
  return free_ended_;
}

base::Status UtofuSession::poll() {
  if (status_ != HEDDLE_DONE) return status_;
  bool ended = true;
  for (Queue& queue : queues_) ended = (queue.ended || poll_queue(queue)) && ended;
  ended = (free_ended_ || poll_free()) && ended;
  if (status_ != HEDDLE_DONE) return status_;
  if (!ended) return HEDDLE_AGAIN;
  after_notice();
  return HEDDLE_DONE;
}

}  // namespace

// ---- Sessions -----------------------------------------------------------------------------------

Sessions::Sessions(Device& device) : device_(device) {}

// If a Session was abandoned, the common VCQ stays too, with its registrations and with what its
// commands refer to.
Sessions::~Sessions() {
  if (!ready_) return;
  if (!left_.empty()) {
    keep_to_the_end(Kept{std::move(words_), std::move(left_)});
    return;
  }
  Library& library = device_.library();
  {
    const CqGuard guard(plain_);
    library.deregister(plain_, plain_words_);
  }
  library.destroy(plain_);
}

SessionQueues::Limits Sessions::limits() const {
  Limits limits;
  limits.commands = static_cast<std::uint32_t>(device_.environment().config.number(base::Var::utofu_session_depth));
  limits.credits = kMostCredits;
  limits.bytes = kMostTransfer;
  const std::uint64_t spread = device_.environment().config.number(base::Var::utofu_spread_bytes);
  if (spread > 0 && device_.library().tnis() > 1) limits.spread_bytes = spread;
  return limits;
}

base::Status Sessions::set_up_locked() {
  if (ready_) return HEDDLE_DONE;
  auto words = Pages::create(kWordBytes);
  if (!words) return words.status();
  auto plain = device_.library().create(0, false);
  if (!plain) return plain.status();
  plain_ = *plain;
  words_ = std::move(*words);
  base::Status status = HEDDLE_DONE;
  {
    const CqGuard guard(plain_);
    const auto registered = device_.library().register_memory(plain_, words_.data(), kWordBytes);
    status = registered.status();
    if (registered) plain_words_ = *registered;
  }
  if (status != HEDDLE_DONE) device_.library().destroy(plain_);
  ready_ = status == HEDDLE_DONE;
  return status;
}

base::Result<std::unique_ptr<Session>> Sessions::open(std::span<const std::uint32_t> links,
                                                      std::span<std::byte> memory) {
  {
    const std::lock_guard lock(mutex_);
    if (const base::Status status = set_up_locked(); status != HEDDLE_DONE) return status;
  }
  auto session = std::make_unique<UtofuSession>(*this, memory);
  if (const base::Status status = session->add_queues(links); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Session>(std::move(session));
}

int Sessions::post_plain(std::span<const std::uint64_t> slots, FreeEnd* end) {
  const CqGuard guard(plain_);
  // post_toq() does not write to the descriptors.
  return device_.library().call().post_toq(plain_.handle, const_cast<std::uint64_t*>(slots.data()), slots.size_bytes(),
                                           end);
}

int Sessions::poll_plain() {
  const HeldCq held(plain_.lock);
  if (!held) return UTOFU_SUCCESS;
  const Functions& call = device_.library().call();
  for (;;) {
    void* tag = nullptr;
    const int code = call.poll_tcq(plain_.handle, 0, &tag);
    if (code == UTOFU_ERR_NOT_FOUND) break;
    // The error is not of a command but of the VCQ itself.
    if (code != UTOFU_SUCCESS && !is_of_command(code)) return code;
    std::atomic<int>& end = static_cast<FreeEnd*>(tag)->code;
    // A later success must not overwrite an error.
    if (code != UTOFU_SUCCESS || end.load(std::memory_order_relaxed) == FreeEnd::kUnderWay)
      end.store(code, std::memory_order_release);
  }
  // No command asks for notices. Those that come report failed commands, which their Session learns
  // in another way.
  utofu_mrq_notice notice{};
  int code = UTOFU_SUCCESS;
  while (code == UTOFU_SUCCESS || is_of_notice(code)) code = call.poll_mrq(plain_.handle, 0, &notice);
  return code == UTOFU_ERR_NOT_FOUND ? UTOFU_SUCCESS : code;
}

void Sessions::rejected(std::size_t commands) {
  if (commands > limits().commands || told_.exchange(true, std::memory_order_relaxed)) return;
  device_.environment().log.line(
      base::Level::warn,
      "a session queue does not take %zu commands, though HEDDLE_UTOFU_SESSIONS=depth is %u: "
      "they follow by the calls of "
      "who waits; set it to what the machine's queues take, alike on all ranks",
      commands, limits().commands);
}

void Sessions::keep(std::unique_ptr<FreeEnd> end) {
  const std::lock_guard lock(mutex_);
  left_.push_back(std::move(end));
}

}  // namespace heddle::transport::utofu
