#include "transport/verbs/device.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace heddle::transport::verbs {
namespace {

constexpr std::uint32_t kReceives = 128;
constexpr std::uint32_t kSends = 64;
constexpr std::uint32_t kGrhBytes = 40;      // the global routing header before a datagram
constexpr std::uint32_t kBufferBytes = 576;  // of a frame
static_assert(kBufferBytes >= kGrhBytes + kMostFrame);
// The number of a work request: its generation, whether it is a send, its buffer.
constexpr std::uint64_t kSent = std::uint64_t{1} << 31;
constexpr int kGeneration = 32;
// The pause until a note is sent again, at first and at most.
constexpr std::uint64_t kPauseNs = 20'000'000;
constexpr std::uint64_t kMostPauseNs = 1'000'000'000;
// How many repairs of the pair are tried one after the other, with growing pauses: for some
// seconds.
constexpr std::uint32_t kMostRepairs = 9;

}  // namespace

base::Status DeviceQueue::open() {
  const Adapter& adapter = device_.adapter();
  ranks_.resize(device_.size());
  unacknowledged_.reserve(device_.size());
  base::Status status = channel_.open(adapter);
  if (status == HEDDLE_DONE) status = queue_.open(adapter, channel_, kReceives + kSends, nullptr);
  if (status != HEDDLE_DONE) return status;
  constexpr std::size_t kBytes = std::size_t{kBufferBytes} * (kReceives + kSends);
  if (status = memory_.open(adapter, kBytes, IBV_ACCESS_LOCAL_WRITE); status != HEDDLE_DONE) return status;
  if (status = make_pair(); status != HEDDLE_DONE) return status;
  free_.reserve(kSends);
  post_all();
  return HEDDLE_DONE;
}

base::Status DeviceQueue::make_pair() {
  const Adapter& adapter = device_.adapter();
  ibv_qp_init_attr make{};
  make.qp_type = IBV_QPT_UD;
  make.send_cq = make.recv_cq = queue_.get();
  make.cap.max_send_wr = kSends;
  make.cap.max_recv_wr = kReceives;
  make.cap.max_send_sge = make.cap.max_recv_sge = 1;
  make.sq_sig_all = 1;
  pair_ = adapter.call().create_qp(adapter.domain(), &make);
  if (pair_ == nullptr)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no queue pair for datagrams", adapter.name().c_str());
  address_ = adapter.address();
  address_.datagrams = pair_->qp_num;
  address_.qkey = static_cast<std::uint32_t>(network::pass_of(0, 0, device_.secret())) & 0x7fffffffU;
  const int failed = connect_pair();
  if (failed == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%s does not open its port for datagrams: %s", adapter.name().c_str(),
                    std::strerror(failed));
}

// Takes the pair from its first state to the one in which it sends. 0, or the number of the error.
int DeviceQueue::connect_pair() {
  const Adapter& adapter = device_.adapter();
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = adapter.port();
  to.qkey = address_.qkey;
  int failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  to.qp_state = IBV_QPS_RTR;
  if (failed == 0) failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE);
  to.qp_state = IBV_QPS_RTS;
  if (failed == 0) failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE | IBV_QP_SQ_PSN);
  return failed;
}

// All buffers: none is under way.
void DeviceQueue::post_all() {
  for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(i);
  free_.clear();
  for (std::uint32_t i = 0; i < kSends; ++i) free_.push_back(kReceives + i);
}

void DeviceQueue::close() {
  if (!channel_.is_open()) return;
  const Functions& call = device_.adapter().call();
  if (pair_ != nullptr) call.destroy_qp(std::exchange(pair_, nullptr));
  for (Rank& rank : ranks_) {
    if (rank.route != nullptr) call.destroy_ah(std::exchange(rank.route, nullptr));
  }
  memory_.close();
  queue_.close();
  channel_.close();
}

// ---- Courier ------------------------------------------------------------------------------------

base::Status DeviceQueue::check_card(const network::CardHead& card, std::uint32_t rank) const {
  const bool theirs = std::strcmp(card.provider, "InfiniBand") == 0;
  const bool mine = device_.adapter().by_gid() == false;
  if (theirs == mine) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG, "rank %u uses an adapter of %s, this rank one of %s; see HEDDLE_NET_DEVICES",
                    rank, card.provider, device_.link());
}

base::Status DeviceQueue::connect(std::uint32_t rank, std::span<const std::byte> address) {
  Rank& to = ranks_[rank];
  if (state_ == State::lost) return base::fail(HEDDLE_ERR_PEER_FAILED, "this rank's queue pair for notes is lost");
  if (address.size() != sizeof to.address)
    return base::fail(HEDDLE_ERR_PROTOCOL, "the address of rank %u has %zu bytes", rank, address.size());
  // The neighbour's address may not be known yet, or there may be no route for a while.
  const std::uint64_t now = device_.now_ns();
  if (now < to.again_at) return HEDDLE_AGAIN;
  std::memcpy(&to.address, address.data(), sizeof to.address);
  const Adapter& adapter = device_.adapter();
  ibv_ah_attr route = adapter.route_to(to.address);
  to.route = adapter.call().create_ah(adapter.domain(), &route);
  if (to.route == nullptr) {
    const std::uint64_t most = device_.timeout_ns();
    to.pause = std::clamp(2 * to.pause, kPauseNs, kMostPauseNs);
    to.again_at = now + to.pause;
    if (most == 0 || !to.patience.over(now, most)) return HEDDLE_AGAIN;
    return base::fail_errno(HEDDLE_ERR_CONFIG, "%s finds no route to rank %u within HEDDLE_NETWORK_TIMEOUT",
                            adapter.name().c_str(), rank);
  }
  to.open = true;
  if (std::exchange(to.owes, false)) static_cast<void>(transmit(rank));
  return HEDDLE_DONE;
}

base::Status DeviceQueue::send(std::uint32_t rank, network::Bytes* note) {
  Rank& to = ranks_[rank];
  if (state_ == State::lost && to.open) device_.directory().broken(rank, "this rank's queue pair for notes is lost");
  if (!to.open || state_ == State::lost) return HEDDLE_ERR_PEER_FAILED;
  if (!to.note.empty()) return HEDDLE_AGAIN;
  // notes are short
  if (note->size() + sizeof(NoteFrame) > kMostFrame) return HEDDLE_ERR_PEER_FAILED;
  to.note = std::move(*note);
  ++to.number;
  to.patience.renew();
  to.pause = kPauseNs;
  to.again_at = device_.now_ns() + to.pause;
  unacknowledged_.push_back(rank);    // it has room for all
  static_cast<void>(transmit(rank));  // else it is sent again
  return HEDDLE_DONE;
}

void DeviceQueue::disconnect(std::uint32_t rank) {
  ranks_[rank].open = false;
  ranks_[rank].note.clear();
  std::erase(unacknowledged_, rank);
}

bool DeviceQueue::handshake(std::uint32_t rank, std::uint32_t worker, const std::byte* data, std::uint32_t bytes) {
  Handshake hello;
  if (bytes != sizeof hello) return false;
  std::memcpy(&hello, data, sizeof hello);
  return device_.deliver(rank, worker, hello);
}

bool DeviceQueue::progress() {
  if (state_ == State::lost) return false;
  if (state_ == State::broken) repair();
  std::array<ibv_wc, 16> entries;
  const std::size_t count = queue_.poll(entries);
  for (const ibv_wc& entry : std::span(entries).first(count)) {
    if (entry.wr_id >> kGeneration != generation_) continue;  // of before a repair
    if (entry.status != IBV_WC_SUCCESS) {
      note_broken(device_.adapter().call().wc_status_str(entry.status));
      continue;
    }
    repairs_ = 0;
    const auto buffer = static_cast<std::uint32_t>(entry.wr_id & (kSent - 1));
    if ((entry.wr_id & kSent) != 0) {
      free_.push_back(buffer);  // it has room
      continue;
    }
    if (entry.byte_len >= kGrhBytes)
      take(memory_.begin() + std::size_t{buffer} * kBufferBytes + kGrhBytes, entry.byte_len - kGrhBytes);
    post_receive(buffer);
  }
  if (!unacknowledged_.empty()) send_again();
  return count != 0;
}

void DeviceQueue::look() {
  device_.events().read();
}

bool DeviceQueue::arm() {
  channel_.drain();
  queue_.arm();
  return !progress();
}

// ---- repair -------------------------------------------------------------------------------------

void DeviceQueue::note_broken(const char* why) {
  if (state_ != State::works) return;
  state_ = State::broken;
  device_.log().line(base::Level::info, "the queue pair for notes of %s has an error, and is set up again: %s",
                     device_.adapter().name().c_str(), why);
}

// The adapter forgets what the pair has under way. Its completions are read, or known by their
// generation.
void DeviceQueue::repair() {
  const std::uint64_t now = device_.now_ns();
  if (now < repair_at_) return;
  if (repairs_ == kMostRepairs) {
    device_.log().line(base::Level::error,
                       "the queue pair for notes of %s has an error, and it cannot be repaired: this rank connects to "
                       "no other any more",
                       device_.adapter().name().c_str());
    return lose();
  }
  repair_at_ = now + std::min(kPauseNs << repairs_++, kMostPauseNs);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RESET;
  if (device_.adapter().call().modify_qp(pair_, &to, IBV_QP_STATE) != 0) return;
  std::array<ibv_wc, 16> old;
  while (queue_.poll(old) == old.size()) continue;
  ++generation_;
  if (connect_pair() != 0) return;
  state_ = State::works;
  post_all();
  for (const std::uint32_t rank : unacknowledged_) ranks_[rank].again_at = now;
}

void DeviceQueue::lose() {
  state_ = State::lost;
  for (const std::uint32_t rank : unacknowledged_) {
    ranks_[rank].note.clear();
    device_.directory().broken(rank, "this rank's queue pair for notes is lost");
  }
  unacknowledged_.clear();
}

// ---- frames -------------------------------------------------------------------------------------

void DeviceQueue::post_receive(std::uint64_t number) {
  ibv_sge part{reinterpret_cast<std::uintptr_t>(memory_.begin() + number * kBufferBytes), kGrhBytes + kMostFrame,
               memory_.lkey()};
  ibv_recv_wr request{};
  request.wr_id = std::uint64_t{generation_} << kGeneration | number;
  request.sg_list = &part;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(pair_, &request, &bad);
  if (error != 0) note_broken(std::strerror(error));  // it has room
}

// Sends the note that the rank has not acknowledged, or an acknowledgement alone. False: not now.
bool DeviceQueue::transmit(std::uint32_t rank) {
  if (free_.empty() || state_ != State::works) return false;
  Rank& to = ranks_[rank];
  const std::uint32_t buffer = free_.back();
  std::byte* at = memory_.begin() + std::size_t{buffer} * kBufferBytes;
  NoteFrame frame;
  frame.rank = device_.rank();
  frame.number = to.note.empty() ? 0 : to.number;
  frame.acknowledged = to.taken;
  frame.bytes = static_cast<std::uint32_t>(to.note.size());
  network::seal(&frame, device_.secret());
  std::memcpy(at, &frame, sizeof frame);
  if (!to.note.empty()) std::memcpy(at + sizeof frame, to.note.data(), to.note.size());
  ibv_sge part{reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(sizeof frame) + frame.bytes,
               memory_.lkey()};
  ibv_send_wr request{};
  request.wr_id = std::uint64_t{generation_} << kGeneration | kSent | buffer;
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud.ah = to.route;
  request.wr.ud.remote_qpn = to.address.datagrams;
  request.wr.ud.remote_qkey = to.address.qkey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_, &request, &bad); error != 0) {
    note_broken(std::strerror(error));  // it has room
    return false;
  }
  free_.pop_back();
  return true;
}

void DeviceQueue::take(const std::byte* data, std::size_t bytes) {
  NoteFrame frame;
  const bool whole = bytes >= sizeof frame;
  if (whole) std::memcpy(&frame, data, sizeof frame);
  if (!whole || !network::sealed(frame, device_.secret()) || frame.rank >= device_.size() ||
      frame.bytes != bytes - sizeof frame) {
    device_.directory().note(nullptr, 0);  // counts it as malformed
    return;
  }
  take_frame(frame, data + sizeof frame);
}

void DeviceQueue::take_frame(const NoteFrame& frame, const std::byte* data) {
  Rank& from = ranks_[frame.rank];
  if (!from.note.empty() && frame.acknowledged == from.number) {
    from.note.clear();
    std::erase(unacknowledged_, frame.rank);
  }
  if (frame.number == 0 || frame.number > from.taken + 1) return;
  if (frame.number == from.taken + 1) {
    if (!device_.directory().note(data, frame.bytes)) return;  // it comes again
    from.taken = frame.number;
  }
  // An earlier frame may have acknowledged it already; once more does no harm. A rank without notes
  // must acknowledge too, or it seems dead.
  if (!from.open) {
    from.owes = true;
    static_cast<void>(device_.directory().meet(frame.rank));  // else with its next frame
  } else {
    static_cast<void>(transmit(frame.rank));  // else the note comes again
  }
}

void DeviceQueue::send_again() {
  const std::uint64_t now = device_.now_ns();
  for (std::size_t i = 0; i < unacknowledged_.size(); ++i) {
    const std::uint32_t rank = unacknowledged_[i];
    Rank& to = ranks_[rank];
    if (now < to.again_at) continue;
    if (device_.failed(rank)) {  // nobody is there to hear it
      to.note.clear();
      continue;
    }
    if (device_.timeout_ns() != 0 && to.patience.over(now, device_.timeout_ns())) {
      device_.directory().broken(rank, "it does not answer");
      continue;
    }
    to.pause = std::min(2 * to.pause, kMostPauseNs);
    to.again_at = now + to.pause;
    static_cast<void>(transmit(rank));
  }
  std::erase_if(unacknowledged_, [this](std::uint32_t rank) { return ranks_[rank].note.empty(); });
}

}  // namespace heddle::transport::verbs
