#include "transport/ucx/device_worker.hpp"

#include <optional>
#include <string>
#include <utility>

#include "transport/ucx/device.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint64_t kNewsNs =
    2'000'000'000;  // until a death is known: a second, and one more for a machine under load
constexpr std::uint64_t kCloseNs = 2'000'000'000;

}  // namespace

base::Status DeviceWorker::open() {
  lines_.resize(device_.size());
  const ucs_status_t status = create_worker(call_, device_.context(), &worker_);
  if (status != UCS_OK) return device_.no_worker(status);
  return listen(call_, worker_, kNoteId, on_note, this);
}

void DeviceWorker::end() {
  network::Directory& directory = device_.directory();
  directory.disconnect_all();
  base::Clock& clock = *device_.environment().clock;
  const std::uint64_t until = clock.now_ns() + kCloseNs;
  while (closes() && clock.now_ns() < until) directory.work();
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

// ---- connections --------------------------------------------------------------------------------

// Nobody promises that UCX's versions are compatible, unless they differ in the last number only.
base::Status DeviceWorker::check_card(const network::CardHead& card, std::uint32_t rank) const {
  const std::string theirs = card.version;
  const std::string& mine = device_.library().version();
  const auto series = [](const std::string& of) { return of.substr(0, of.rfind('.')); };
  if (series(theirs) == series(mine)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_VERSION,
                    "rank %u has UCX %s, this rank %s; use one UCX in all ranks (HEDDLE_UCX_LIBRARY)", rank,
                    theirs.c_str(), mine.c_str());
}

DeviceWorker::Line& DeviceWorker::line(std::uint32_t rank) {
  auto& known = lines_[rank];
  if (known != nullptr) return *known;
  auto made = std::make_unique<Line>();
  made->from = this;
  made->rank = rank;
  made->tried_since = device_.environment().clock->now_ns();
  make_room(&closing_, known_lines_ + 1);  // so that closing needs no memory
  ++known_lines_;
  known = std::move(made);
  return *known;
}

// A rank that has just died cannot be reached either, and the bootstrap reports that later: this
// gives it time for that.
base::Status DeviceWorker::connect(std::uint32_t rank, std::span<const std::byte> address) {
  Line& to = line(rank);
  const bool last = device_.environment().clock->now_ns() - to.tried_since >= kNewsNs;
  std::optional<Library::Hush> hush;
  if (!last) hush.emplace();
  const ucs_status_t status = device_.connect(worker_, address.data(), on_broken, &to, &to.endpoint);
  if (status == UCS_OK) return HEDDLE_DONE;
  if (status == UCS_ERR_NO_MEMORY)
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a connection to rank %u", rank);
  if (!last) return HEDDLE_AGAIN;
  return base::fail(HEDDLE_ERR_CONFIG, "UCX finds no route to rank %u: %s; look at HEDDLE_UCX_TLS and UCX_TLS", rank,
                    call_.status_string(status));
}

// Called within UCX's progress: the directory has the endpoint closed afterwards.
void DeviceWorker::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  const Line& line = *static_cast<const Line*>(arg);
  Device& device = line.from->device_;
  device.directory().broken(line.rank, line.from->call_.status_string(status));
}

void DeviceWorker::disconnect(std::uint32_t rank) {
  Line* line = lines_[rank].get();
  if (line == nullptr || line->endpoint == nullptr || !device_.recovers()) return;
  void* request = force_close(call_, std::exchange(line->endpoint, nullptr));
  if (request != nullptr) closing_.push_back(request);
}

// ---- notes --------------------------------------------------------------------------------------

base::Status DeviceWorker::send(std::uint32_t rank, Bytes* note) {
  Line* line = lines_[rank].get();
  if (line == nullptr || line->endpoint == nullptr) return HEDDLE_ERR_PEER_FAILED;
  auto sent_note = std::make_unique<Sent>(Sent{{}, this});
  sent_note->bytes = std::move(*note);
  void* request = send_message(call_, line->endpoint, kNoteId, sent_note->bytes.data(), sent_note->bytes.size(),
                               on_sent, sent_note.get());
  if (request == nullptr) return HEDDLE_DONE;
  if (UCS_PTR_IS_ERR(request)) {
    on_broken(line, line->endpoint, UCS_PTR_STATUS(request));
    return HEDDLE_ERR_PEER_FAILED;
  }
  ++sending_;
  static_cast<void>(sent_note.release());  // on_sent() frees it
  return HEDDLE_DONE;
}

void DeviceWorker::on_sent(void* request, ucs_status_t, void* user) {
  const std::unique_ptr<Sent> sent_note(static_cast<Sent*>(user));
  --sent_note->from->sending_;
  sent_note->from->call_.request_free(request);
}

ucs_status_t DeviceWorker::on_note(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  const bool here = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && header_bytes == 0;
  Device& device = static_cast<DeviceWorker*>(arg)->device_;
  // of 0 bytes: it is malformed
  device.directory().note(static_cast<const std::byte*>(data), here ? bytes : 0);
  return UCS_OK;
}

bool DeviceWorker::progress() {
  const bool some = call_.worker_progress(worker_) != 0;
  std::erase_if(closing_, [this](void* request) {
    if (call_.request_check_status(request) == UCS_INPROGRESS) return false;
    call_.request_free(request);
    return true;
  });
  return some;
}

}  // namespace heddle::transport::ucx
