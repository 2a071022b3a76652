#include "transport/ucx/station.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace heddle::transport::ucx {
namespace {

// How long transfers may take to end when their worker is closed; then their connections are ended.
constexpr std::uint64_t kCloseNs = 250'000'000;
constexpr std::uint64_t kForceNs = 5'000'000'000;
// How long a greeting is tried by value; a network that cannot do that gets an ordinary one.
constexpr std::uint64_t kGreetNs = 200'000'000;

}  // namespace

Station::Station(Home& home, std::uint32_t index)
    : home_(home),
      call_(home.library().call()),
      index_(index),
      max_workers_(home.max_workers()),
      window_(home.window()),
      pass_(pass_of(home.rank(), index, home.secret())),
      channel_of_(std::size_t{home.size()} * max_workers_),
      packets_(new Packet[kPackets]),
      operation_count_(static_cast<std::uint32_t>(home.environment().config.number(base::Var::worker_operations))),
      failed_(home.size()) {
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    packets_[i].station = this;
    free_packets_.append(&packets_[i]);
  }
  operations_ = std::make_unique<Operation[]>(operation_count_);
  for (std::uint32_t i = operation_count_; i-- > 0;) {
    operations_[i].station = this;
    operations_[i].next = free_operation_;
    free_operation_ = &operations_[i];
  }
  sendings_ = std::make_unique<Sending[]>(operation_count_);
  for (std::uint32_t i = 0; i < operation_count_; ++i) {
    sendings_[i].next = free_sending_;
    free_sending_ = &sendings_[i];
  }
  backlog_.resize(std::size_t{2} * kRefusals + 3 * std::size_t{operation_count_});
}

base::Result<std::unique_ptr<Station>> Station::create(Home& home, std::uint32_t index) {
  std::unique_ptr<Station> station(new Station(home, index));
  if (const base::Status status = station->open(); status != HEDDLE_DONE) return status;
  return station;
}

base::Status Station::open() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = call_.worker_create(home_.context(), &params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return base::fail(HEDDLE_ERR_NO_MEMORY, "UCX gives no worker: %s", call_.status_string(status));
  }
  struct Receiver {
    unsigned id;
    ucp_am_recv_callback_t receive;
  };
  for (const auto& [id, receive] :
       {Receiver{kMessageId, on_message}, Receiver{kBundleId, on_bundle}, Receiver{kCreditId, on_credit}}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = receive;
    handler.arg = this;
    status = call_.worker_set_am_recv_handler(worker_, &handler);
    if (status != UCS_OK) return base::fail(HEDDLE_ERR_SYSTEM, "UCX takes no handler: %s", call_.status_string(status));
  }
  Bytes address;
  if (const base::Status copied = copy_address(&address); copied != HEDDLE_DONE) return copied;
  const Turn turn(*this);  // the helper does not come before all is there
  if (const base::Status watched = be_watched(); watched != HEDDLE_DONE) return watched;
  return home_.announce(index_, std::move(address));
}

base::Status Station::copy_address(Bytes* copy) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = call_.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no address: %s", call_.status_string(status));
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  copy->assign(begin, begin + bytes);
  call_.worker_release_address(worker_, address);
  return HEDDLE_DONE;
}

Station::~Station() {
  if (watch_ != 0 && !retired()) home_.helper().unwatch(watch_, descriptor_);  // it was never a worker's
  if (worker_ != nullptr) end();
}

// Nothing is under way that must not be cut off.
void Station::end() {
  for (const auto& channel : channels_) break_off(*channel, HEDDLE_ERR_PEER_FAILED, true);
  const std::uint64_t until = now_ns() + kForceNs;
  while (!closing_.empty() && now_ns() < until) {
    call_.worker_progress(worker_);
    close_broken();
  }
  for (const Unpacked& unpacked : unpacked_) {
    if (unpacked.key != nullptr) call_.rkey_destroy(unpacked.key);
  }
  for (ucp_rkey_h key : old_keys_) call_.rkey_destroy(key);
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

// ---- completions --------------------------------------------------------------------------------------------------------

void Station::emit(Token token, base::Status status, Event event) {
  Completion* record = nullptr;
  if (room_ != 0) [[likely]] {
    record = out_++;
    --room_;
  } else {
    record = &backlog_[(backlog_first_ + backlog_count_++) % backlog_.size()];
  }
  *record = Completion{};
  record->event = event;
  record->status = status;
  record->token = token;
}

std::size_t Station::drain_backlog(std::span<Completion> out) {
  const std::size_t n = std::min(out.size(), backlog_count_);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = backlog_[backlog_first_];
    backlog_first_ = (backlog_first_ + 1) % backlog_.size();
  }
  backlog_count_ -= n;
  if (backlog_count_ == 0) refusals_ = 0;
  return n;
}

// Accepted, and fails: its completion comes from the next poll. False: not accepted.
[[gnu::cold]] bool Station::refuse(Command& command, base::Status status) {
  if (status == HEDDLE_AGAIN || refusals_ == kRefusals) return false;
  ++refusals_;
  command.source_free = true;
  emit(command.token, status, Event::done);
  return true;
}

// ---- the contract -------------------------------------------------------------------------------------------------------

std::size_t Station::post(std::span<Command> batch) {
  if (batch.size() == 1) {
    Command& command = batch.front();
    return (command.opcode == Opcode::message ? post_message(command) : post_transfer(command)) ? 1 : 0;
  }
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      Command& command = batch[accepted];
      const bool message = command.opcode == Opcode::message;
      const std::size_t bundled = message && batch.size() - accepted > 1 ? post_bundle(batch.subspan(accepted)) : 0;
      if (bundled == 0 && !(message ? post_message(command) : post_transfer(command))) break;
      accepted += std::max<std::size_t>(bundled, 1);
    }
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

std::size_t Station::poll(std::span<Completion> completions) {
  if (completions.empty()) [[unlikely]]
    return 0;
  if (!lending_.empty()) release_lent();
  std::size_t n = 0;
  if (backlog_count_ != 0) [[unlikely]]
    n = drain_backlog(completions);
  out_ = completions.data() + n;
  room_ = completions.size() - n;
  if (!dirty_.empty()) flush_dirty();
  // What the flush has brought may be all that its caller waits for; UCX is asked often enough.
  if (room_ == completions.size() || ++skipped_ >= 4) {
    skipped_ = 0;
    if (call_.worker_progress(worker_) != 0 && armed()) [[unlikely]]
      armed_.store(false, std::memory_order_relaxed);
  }
  if (!changing_.empty()) [[unlikely]]
    change_again();
  const std::uint32_t turn = polls() + 1;
  turn_.store(turn, std::memory_order_relaxed);
  if (!telling_.empty() && turn - tell_at_ < std::uint32_t{1} << 31) tell_all();
  if ((turn & (kHomePeriod - 1)) == 0 || !connecting_.empty() || !to_break_.empty() || !dying_.empty() ||
      !closing_.empty() || !owing_.empty()) [[unlikely]] {
    after_progress();
  }
  n = completions.size() - room_;
  room_ = 0;
  if (!ready_.empty()) n += hand_out(completions.subspan(n));
  // This poll may be the last for long, and has taken from UCX what would have called the helper.
  if (!telling_.empty() && quiet()) [[unlikely]]
    leaves_something();
  return n;
}

// What is not looked at by every poll.
void Station::after_progress() {
  if (!owing_.empty()) send_credits();
  const std::uint32_t turn = polls();
  if ((turn & (kHomePeriod - 1)) == 0 || (!connecting_.empty() && (turn & (kConnectingPeriod - 1)) == 0)) {
    home_.progress();
    if (!connecting_.empty()) advance_connecting();
    const std::uint64_t releases = home_.releases().load(std::memory_order_relaxed);
    if (releases != releases_seen_) {
      releases_seen_ = releases;
      forget_releases();
    }
  }
  if (!to_break_.empty() || !dying_.empty() || !closing_.empty()) close_broken();
}

void Station::peer_failed(std::uint32_t rank) {
  if (rank >= failed_.size() || failed_[rank] != 0) return;
  failed_[rank] = 1;
  for (const auto& channel : channels_) {
    if (channel->rank != rank) continue;
    if (channel->stage == Channel::Stage::broken) channel->status = HEDDLE_ERR_PEER_FAILED;
    break_off(*channel, HEDDLE_ERR_PEER_FAILED, false);
  }
}

bool Station::closed(TransportWorker::Target target) const {
  if (target.rank >= failed_.size() || target.worker >= max_workers_) return false;
  const Channel* channel = channel_of_[std::size_t{target.rank} * max_workers_ + target.worker];
  if (channel == nullptr) return false;
  if (channel->stage == Channel::Stage::ready) return home_.known_closed(target.rank, target.worker);
  return channel->stage == Channel::Stage::closed;
}

// The caller's memory is UCX's until the transfers have ended; peers that make no progress do not hold us up for long.
void Station::close() {
  closed_ = true;
  room_ = 0;
  const std::uint64_t until = now_ns() + kCloseNs;
  const auto drive = [this] {
    backlog_first_ = backlog_count_ = 0;
    if (!dirty_.empty()) flush_dirty();
    const bool some = call_.worker_progress(worker_) != 0;
    if (!changing_.empty()) change_again();
    turn_.store(0, std::memory_order_relaxed);  // after_progress() does everything
    after_progress();
    backlog_first_ = backlog_count_ = 0;
    if (!some) sched_yield();
  };
  while (under_way_ != 0 && now_ns() < until) drive();
  if (under_way_ == 0) return;
  for (std::uint32_t i = 0; i < operation_count_; ++i) {
    if (operations_[i].active) break_off(*operations_[i].channel, HEDDLE_ERR_PEER_FAILED, false);
  }
  const std::uint64_t forced = now_ns() + kForceNs;
  while (under_way_ != 0 && now_ns() < forced) drive();
}

bool Station::linger() {
  if (has_orphans()) return false;
  room_ = 0;
  backlog_first_ = backlog_count_ = 0;
  if (!lending_.empty()) release_lent();
  const bool some = call_.worker_progress(worker_) != 0;
  for (Channel* channel : ready_) {
    channel->consumed = channel->arrived;
    channel->records = 0;
    channel->read_at = channel->write_at;
    channel->queued = false;
    owe(*channel);
  }
  ready_.clear();
  if (!telling_.empty()) tell_all();
  if (!owing_.empty()) send_credits();
  if (!connecting_.empty()) advance_connecting();
  if (!to_break_.empty() || !dying_.empty() || !closing_.empty()) close_broken();
  const bool waits = std::ranges::any_of(connecting_, [this](const Channel* channel) {
    return channel->waiting_count != 0 && !home_.failed(channel->rank);
  });
  // Peers hear of what has arrived, else their messages seem lost.
  const bool owes =
      std::ranges::any_of(owing_, [this](const Channel* channel) { return !home_.failed(channel->rank); });
  return some || waits || owes || packets_out_ + credits_out_ != 0;
}

// ---- channels -----------------------------------------------------------------------------------------------------------

// Null: `why` says why not; AGAIN is not among it. The channel may not be connected yet.
Channel* Station::channel_to(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank >= home_.size()) {
    *why = base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, home_.size() - 1);
    return nullptr;
  }
  if (worker >= max_workers_) {
    *why = base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", worker, rank, max_workers_);
    return nullptr;
  }
  Channel* channel = slot(rank, worker);
  if (channel == nullptr) [[unlikely]] {
    if (failed_[rank] != 0 || home_.failed(rank)) {
      *why = HEDDLE_ERR_PEER_FAILED;
      return nullptr;
    }
    try {
      channel = new_channel(rank, worker);
    } catch (const std::bad_alloc&) {
      *why = HEDDLE_AGAIN;
      return nullptr;
    }
  }
  if (channel->stage == Channel::Stage::unopened) connect(*channel);
  if (channel->stage == Channel::Stage::broken) {
    *why = channel->status;
    return nullptr;
  }
  return channel;
}

Channel* Station::new_channel(std::uint32_t rank, std::uint32_t worker) {
  auto made = std::make_unique<Channel>();
  // All lists have room for all channels, so that nothing needs memory later.
  const std::size_t count = channels_.size() + 1;
  const auto grow = [count](auto* list) {
    if (list->capacity() < count) list->reserve(2 * count);
  };
  grow(&channels_);
  for (auto* list : {&dirty_, &ready_, &lending_, &owing_, &telling_, &connecting_, &to_break_, &dying_}) grow(list);
  grow(&closing_);
  made->station = this;
  made->rank = rank;
  made->worker = worker;
  made->pass = pass_of(rank, worker, home_.secret());
  if (failed_[rank] != 0) {
    made->stage = Channel::Stage::broken;
    made->status = HEDDLE_ERR_PEER_FAILED;
  }
  channels_.push_back(std::move(made));
  return slot(rank, worker) = channels_.back().get();
}

void Station::connect(Channel& channel) {
  channel.stage = Channel::Stage::connecting;
  connecting_.push_back(&channel);
  if (connection_ready(channel)) connecting_.pop_back();
  waits_for_home_.store(!connecting_.empty(), std::memory_order_relaxed);
  if (!connecting_.empty()) leaves_something();  // a question, which leaves by the home
}

void Station::advance_connecting() {
  std::erase_if(connecting_, [this](Channel* channel) { return connection_ready(*channel); });
  waits_for_home_.store(!connecting_.empty(), std::memory_order_relaxed);
}

// True: it does not connect any more, for one reason or another.
bool Station::connection_ready(Channel& channel) {
  if (channel.stage == Channel::Stage::greeting) return greet(channel);
  if (channel.stage != Channel::Stage::connecting) return true;
  const auto address = home_.address(channel.rank, channel.worker);
  if (address.status() == HEDDLE_AGAIN || address.status() == HEDDLE_ERR_NO_MEMORY) return false;
  if (address.status() == HEDDLE_ERR_STATE) {
    channel.stage = Channel::Stage::closed;
    drop_waiting(channel);
    end_messages(channel, HEDDLE_DONE);
    return true;
  }
  if (!address) {
    channel.stage = Channel::Stage::broken;
    channel.status = address.status();
    drop_waiting(channel);
    end_messages(channel, channel.status);
    return true;
  }
  const ucs_status_t status = home_.connect(worker_, (*address)->data(), on_broken, &channel, &channel.endpoint);
  if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) {
    return false;
  }
  if (status != UCS_OK) {
    channel.stage = Channel::Stage::broken;
    channel.status = HEDDLE_ERR_PEER_FAILED;
    home_.lose(channel.rank);
    home_.environment().log.line(base::Level::error, "UCX finds no way to worker %u of rank %u: %s", channel.worker,
                                 channel.rank, call_.status_string(status));
    drop_waiting(channel);
    end_messages(channel, channel.status);
    return true;
  }
  if (home_.recovers() && channel.rank != home_.rank()) {
    channel.stage = Channel::Stage::greeting;
    channel.greets_since = now_ns();
    return greet(channel);
  }
  channel.stage = Channel::Stage::ready;
  if (!channel.waiting.empty()) send_waiting(channel);
  return true;
}

// UCX 1.13 does not survive that a peer dies while its answer to that peer's first request waits for a connection to be made. So nothing that asks
// for an answer goes there before both have made theirs: each end sends a credit, which leaves at once or not at all, and waits for the
// other's. True: it does not connect any more.
bool Station::greet(Channel& channel) {
  if (!channel.greeted) {
    fill_head(&channel.credit, channel, 0);
    ucp_request_param_t params;
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    if (now_ns() - channel.greets_since < kGreetNs) params.op_attr_mask |= UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    params.cb.send = on_credit_sent;
    params.user_data = &channel;
    void* request =
        call_.am_send_nbx(channel.endpoint, kCreditId, nullptr, 0, &channel.credit, sizeof channel.credit, &params);
    if (UCS_PTR_STATUS(request) == UCS_ERR_NO_RESOURCE) return false;
    if (UCS_PTR_IS_ERR(request)) {
      on_broken(&channel, channel.endpoint, UCS_PTR_STATUS(request));
      return true;
    }
    if (request != nullptr) {
      channel.credit_flies = true;
      ++credits_out_;
      leaves_something();
    }
    channel.greeted = true;
  }
  // Who answers asks for the address of this worker, which is not given any more once it is closed.
  if (!channel.heard && !closed_ && !home_.known_closed(channel.rank, channel.worker)) return false;
  channel.stage = Channel::Stage::ready;
  if (!channel.waiting.empty()) send_waiting(channel);
  return true;
}

// Called within UCX's progress: the endpoint is closed afterwards.
void Station::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  Channel& channel = *static_cast<Channel*>(arg);
  Station& station = *channel.station;
  if (channel.stage == Channel::Stage::broken && channel.endpoint == nullptr) return;
  channel.given_up = false;
  const base::Level level =
      station.failed_[channel.rank] != 0 || station.home_.failed(channel.rank) ? base::Level::debug : base::Level::info;
  station.home_.environment().log.line(level, "worker %u has lost worker %u of rank %u: %s", station.index_,
                                       channel.worker, channel.rank, station.call_.status_string(status));
  if (std::ranges::find(station.to_break_, &channel) == station.to_break_.end()) station.to_break_.push_back(&channel);
}

// The stream has a gap, and nothing behind it could be taken: better a connection that is lost, which the other end is told where UCX
// watches it, than one that is silent. Called within UCX's progress, as on_broken().
[[gnu::cold]] void Station::give_up(Channel& channel) {
  if (channel.stage == Channel::Stage::broken || channel.given_up) return;
  channel.given_up = true;
  home_.environment().log.line(base::Level::error, "worker %u gives up worker %u of rank %u: its messages have a gap",
                               index_, channel.worker, channel.rank);
  if (std::ranges::find(to_break_, &channel) == to_break_.end()) to_break_.push_back(&channel);
}

}  // namespace heddle::transport::ucx
