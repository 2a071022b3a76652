#include "transport/verbs/device_queue.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "transport/verbs/device.hpp"

namespace heddle::transport::verbs {
namespace {

constexpr std::uint32_t kReceives = 128;
constexpr std::uint32_t kSends = 64;
constexpr std::uint32_t kRouting = 40;  // bytes before a datagram (GRH)
constexpr std::uint32_t kPlace = 576;   // of a frame
static_assert(kPlace >= kRouting + kMostFrame);
constexpr std::uint64_t kSent = std::uint64_t{1} << 32;  // in the numbers of work requests
// Until a note is sent again, at first and at most.
constexpr std::uint64_t kPauseNs = 20'000'000;
constexpr std::uint64_t kMostPauseNs = 1'000'000'000;

}  // namespace

base::Status DeviceQueue::open() {
  const Adapter& adapter = device_.adapter();
  ranks_.resize(device_.size());
  unheard_.reserve(device_.size());
  base::Status status = channel_.open(adapter);
  if (status == HEDDLE_DONE) status = queue_.open(adapter, channel_, kReceives + kSends);
  if (status != HEDDLE_DONE) return status;
  constexpr std::size_t kBytes = std::size_t{kPlace} * (kReceives + kSends);
  memory_.reset(new (std::nothrow) std::byte[kBytes]);
  if (memory_ != nullptr)
    registered_ = (adapter.call().reg_mr)(adapter.domain(), memory_.get(), kBytes, IBV_ACCESS_LOCAL_WRITE);
  if (registered_ == nullptr) {
    return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "%s registers no memory (ulimit -l says how much it may)",
                            adapter.name().c_str());
  }
  if (status = open_pair(); status != HEDDLE_DONE) return status;
  for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(i);
  for (std::uint32_t i = 0; i < kSends; ++i) free_.push_back(kReceives + i);
  return HEDDLE_DONE;
}

base::Status DeviceQueue::open_pair() {
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
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = adapter.port();
  to.qkey = address_.qkey;
  int failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  to.qp_state = IBV_QPS_RTR;
  if (failed == 0) failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE);
  to.qp_state = IBV_QPS_RTS;
  if (failed == 0) failed = adapter.call().modify_qp(pair_, &to, IBV_QP_STATE | IBV_QP_SQ_PSN);
  if (failed == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%s does not open its port for datagrams: %s", adapter.name().c_str(),
                    std::strerror(failed));
}

void DeviceQueue::close() {
  if (!channel_.is_open()) return;
  const Functions& call = device_.adapter().call();
  if (pair_ != nullptr) call.destroy_qp(std::exchange(pair_, nullptr));
  for (Rank& rank : ranks_) {
    if (rank.way != nullptr) call.destroy_ah(std::exchange(rank.way, nullptr));
  }
  if (registered_ != nullptr) call.dereg_mr(std::exchange(registered_, nullptr));
  queue_.close();
  channel_.close();
}

// ---- Courier ------------------------------------------------------------------------------------

base::Status DeviceQueue::check_card(const network::CardHead& card, std::uint32_t rank) const {
  const bool theirs = std::strcmp(card.provider, "InfiniBand") == 0;
  const bool mine = device_.adapter().by_gid() == false;
  if (theirs == mine) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG, "rank %u uses an adapter of %s, this rank one of %s; see HEDDLE_VERBS_DEVICE",
                    rank, card.provider, device_.link());
}

base::Status DeviceQueue::connect(std::uint32_t rank, std::span<const std::byte> address) {
  Rank& to = ranks_[rank];
  if (address.size() != sizeof to.address)
    return base::fail(HEDDLE_ERR_PROTOCOL, "the address of rank %u has %zu bytes", rank, address.size());
  std::memcpy(&to.address, address.data(), sizeof to.address);
  const Adapter& adapter = device_.adapter();
  ibv_ah_attr way = adapter.way_to(to.address);
  to.way = adapter.call().create_ah(adapter.domain(), &way);
  if (to.way == nullptr)
    return base::fail_errno(HEDDLE_ERR_CONFIG, "%s finds no way to rank %u", adapter.name().c_str(), rank);
  to.open = true;
  if (std::exchange(to.owes, false)) static_cast<void>(transmit(rank));
  return HEDDLE_DONE;
}

base::Status DeviceQueue::send(std::uint32_t rank, network::Bytes* note) {
  Rank& to = ranks_[rank];
  if (!to.open) return HEDDLE_ERR_PEER_FAILED;
  if (!to.note.empty()) return HEDDLE_AGAIN;
  if (note->size() + sizeof(Frame) > kMostFrame) return HEDDLE_ERR_PEER_FAILED;  // notes are short
  to.note = std::move(*note);
  ++to.number;
  to.since = device_.now_ns();
  to.pause = kPauseNs;
  to.again_at = to.since + to.pause;
  unheard_.push_back(rank);           // it has room for all
  static_cast<void>(transmit(rank));  // else it is sent again
  return HEDDLE_DONE;
}

void DeviceQueue::disconnect(std::uint32_t rank) {
  ranks_[rank].open = false;
  ranks_[rank].note.clear();
  std::erase(unheard_, rank);
}

bool DeviceQueue::handshake(std::uint32_t rank, std::uint32_t worker, const std::byte* data, std::uint32_t bytes) {
  Hello hello;
  if (bytes != sizeof hello) return false;
  std::memcpy(&hello, data, sizeof hello);
  return device_.deliver(rank, worker, hello);
}

bool DeviceQueue::progress() {
  std::array<ibv_wc, 16> entries;
  const std::size_t count = queue_.poll(entries);
  for (const ibv_wc& entry : std::span(entries).first(count)) {
    if (entry.wr_id >= kSent) {
      free_.push_back(static_cast<std::uint32_t>(entry.wr_id - kSent));  // it has had room
      continue;
    }
    if (entry.status == IBV_WC_SUCCESS && entry.byte_len >= kRouting)
      take(memory_.get() + entry.wr_id * kPlace + kRouting, entry.byte_len - kRouting);
    post_receive(entry.wr_id);
  }
  if (!unheard_.empty()) send_again();
  return count != 0;
}

bool DeviceQueue::arm() {
  channel_.drain();
  queue_.arm();
  return !progress();
}

// ---- frames -------------------------------------------------------------------------------------

void DeviceQueue::post_receive(std::uint64_t number) {
  ibv_sge place{reinterpret_cast<std::uintptr_t>(memory_.get() + number * kPlace), kRouting + kMostFrame,
                registered_->lkey};
  ibv_recv_wr request{};
  request.wr_id = number;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  static_cast<void>(ibv_post_recv(pair_, &request, &bad));  // it has room
}

// Sends what the rank has not acknowledged, or an acknowledgement alone. False: not now.
bool DeviceQueue::transmit(std::uint32_t rank) {
  if (free_.empty()) return false;
  Rank& to = ranks_[rank];
  const std::uint32_t place = free_.back();
  std::byte* at = memory_.get() + std::size_t{place} * kPlace;
  Frame frame;
  frame.rank = device_.rank();
  frame.number = to.note.empty() ? 0 : to.number;
  frame.heard = to.heard;
  frame.bytes = static_cast<std::uint32_t>(to.note.size());
  network::seal(&frame, device_.secret());
  std::memcpy(at, &frame, sizeof frame);
  if (!to.note.empty()) std::memcpy(at + sizeof frame, to.note.data(), to.note.size());
  ibv_sge part{reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(sizeof frame) + frame.bytes,
               registered_->lkey};
  ibv_send_wr request{};
  request.wr_id = kSent + place;
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud.ah = to.way;
  request.wr.ud.remote_qpn = to.address.datagrams;
  request.wr.ud.remote_qkey = to.address.qkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(pair_, &request, &bad) != 0) return false;
  free_.pop_back();
  return true;
}

void DeviceQueue::take(const std::byte* data, std::size_t bytes) {
  Frame frame;
  const bool whole = bytes >= sizeof frame;
  if (whole) std::memcpy(&frame, data, sizeof frame);
  if (!whole || !network::sealed(frame, device_.secret()) || frame.rank >= device_.size() ||
      frame.bytes != bytes - sizeof frame)
    return device_.directory().note(nullptr, 0);  // counts it as malformed
  take_frame(frame, data + sizeof frame);
}

void DeviceQueue::take_frame(const Frame& frame, const std::byte* data) {
  Rank& from = ranks_[frame.rank];
  if (!from.note.empty() && frame.heard == from.number) {
    from.note.clear();
    std::erase(unheard_, frame.rank);
  }
  if (frame.number == 0 || frame.number > from.heard + 1) return;
  if (frame.number == from.heard + 1) {
    from.heard = frame.number;
    device_.directory().note(data, frame.bytes);
  }
  // What answers it may have acknowledged it already; once more does no harm. A rank with nothing
  // to say must still be heard, or it seems dead.
  if (!from.open) {
    from.owes = true;
    static_cast<void>(device_.directory().meet(frame.rank));  // else with its next frame
  } else {
    static_cast<void>(transmit(frame.rank));  // else the note comes again
  }
}

void DeviceQueue::send_again() {
  const std::uint64_t now = device_.now_ns();
  for (std::size_t i = 0; i < unheard_.size(); ++i) {
    const std::uint32_t rank = unheard_[i];
    Rank& to = ranks_[rank];
    if (now < to.again_at) continue;
    if (device_.failed(rank)) {  // nobody is there to hear it
      to.note.clear();
      continue;
    }
    if (device_.names().timeout_ns != 0 && now - to.since > device_.names().timeout_ns) {
      device_.directory().broken(rank, "it does not answer");
      continue;
    }
    to.pause = std::min(2 * to.pause, kMostPauseNs);
    to.again_at = now + to.pause;
    static_cast<void>(transmit(rank));
  }
  std::erase_if(unheard_, [this](std::uint32_t rank) { return ranks_[rank].note.empty(); });
}

}  // namespace heddle::transport::verbs
