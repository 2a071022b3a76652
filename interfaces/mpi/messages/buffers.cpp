#include "mpi/messages/buffers.hpp"

#include <new>

#include <units/buffers.hpp>
#include "mpi/communicators/group.hpp"
#include "mpi/core/check.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {
namespace {

// MPI_Buffer_attach: the buffer of the process.
std::mutex g_buffer_mutex;
std::shared_ptr<BsendBuffer> g_buffer;

std::shared_ptr<BsendBuffer> buffer_of(const Comm& comm) {
  if (comm.buffer != nullptr) return comm.buffer;
  if (const auto& session = comm.group->session(); session != nullptr)
    if (std::shared_ptr<BsendBuffer> buffer = session->get(); buffer != nullptr) return buffer;
  const std::scoped_lock lock(g_buffer_mutex);
  return g_buffer;
}

constexpr std::size_t kPieceAlignment = 16;

}  // namespace

void BsendBuffer::reap() {
  pieces_.remove_if([](const Piece& piece) { return piece.ended.load(std::memory_order_acquire) != kPending; });
}

// First fit. Null: no room.
BsendBuffer::Piece* BsendBuffer::take(std::size_t bytes) {
  reap();
  const std::size_t room = (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  if (automatic()) {
    std::unique_ptr<std::byte[]> own(new (std::nothrow) std::byte[std::max<std::size_t>(bytes, 1)]);
    if (own == nullptr) return nullptr;
    Piece& piece = pieces_.emplace_back();
    piece.begin = own.get();
    piece.own = std::move(own);
    return &piece;
  }
  std::byte* at = address_;
  auto next = pieces_.begin();
  for (; next != pieces_.end(); ++next) {
    if (static_cast<std::size_t>(next->begin - at) >= room) break;
    at = next->begin + next->bytes;
  }
  if (next == pieces_.end() && static_cast<std::size_t>(address_ + bytes_ - at) < bytes) return nullptr;
  Piece& piece = *pieces_.emplace(next);
  piece.begin = at;
  piece.bytes = std::min(room, static_cast<std::size_t>(address_ + bytes_ - at));
  return &piece;
}

int BsendBuffer::send(Comm& comm, const Data& data, int rank, int tag) {
  const std::scoped_lock lock(mutex_);
  Piece* const piece = take(data.bytes());
  if (piece == nullptr) {
    return error(MPI_ERR_BUFFER, "no room for %zu bytes in the attached buffer of %lld: attach a larger one",
                 data.bytes(), static_cast<long long>(bytes_));
  }
  pack(data.buffer, data.count, *data.type, piece->begin);
  const MemberAddress& member = comm.members[static_cast<std::size_t>(rank)];
  const SendWay way = way_to(comm, member, tag);
  return post_send(way.lane, {way.target, wire_tag(member.number, tag) | kind_on_wire(*data.type), piece->begin,
                              data.bytes(), HEDDLE_WHEN_LOCAL, &piece->ended});
}

bool BsendBuffer::empty() {
  const std::scoped_lock lock(mutex_);
  reap();
  return pieces_.empty();
}

int send_buffered(Comm& comm, const Data& data, int rank, int tag) {
  const std::shared_ptr<BsendBuffer> buffer = buffer_of(comm);
  if (buffer == nullptr)
    return error(MPI_ERR_BUFFER,
                 "no buffer is attached to the communicator, its session or the process (MPI_Buffer_attach)");
  return buffer->send(comm, data, rank, tag);
}

namespace {

void flush_buffer(BsendBuffer& buffer) {
  wait_until(*g_job.lanes[0], [&] {
    progress_all();
    return buffer.empty();
  });
}

int detach_from(std::shared_ptr<BsendBuffer>* where, void* buffer_addr, CountOut size) {
  if (buffer_addr == nullptr || !size.present()) return null_argument(buffer_addr == nullptr ? "buffer_addr" : "size");
  if (*where == nullptr) return error(MPI_ERR_BUFFER, "no buffer is attached");
  flush_buffer(**where);
  *static_cast<void**>(buffer_addr) = (*where)->address();
  size.set((*where)->bytes());
  where->reset();
  return MPI_SUCCESS;
}

class Flush final : public MpiOperation {
 public:
  explicit Flush(std::shared_ptr<BsendBuffer> buffer) : buffer_(std::move(buffer)) {}
  bool test(Outcome* outcome) override {
    *outcome = {};
    if (buffer_ == nullptr || buffer_->empty()) return true;
    progress_all();
    return buffer_->empty();
  }
  Lane& lane() override { return *g_job.lanes[0]; }

 private:
  const std::shared_ptr<BsendBuffer> buffer_;
};

int iflush(std::shared_ptr<BsendBuffer> buffer, MPI_Request* request) {
  if (request == nullptr) return null_argument("request");
  return new_request(std::make_unique<Flush>(std::move(buffer)), false, request);
}

std::shared_ptr<BsendBuffer> own_buffer() {
  const std::scoped_lock lock(g_buffer_mutex);
  return g_buffer;
}

int attach_to(std::shared_ptr<BsendBuffer>* where, void* buffer, MPI_Count size) {
  if (*where != nullptr) return error(MPI_ERR_BUFFER, "a buffer is attached already: detach it first");
  if (size < 0) return error(MPI_ERR_ARG, "size %lld is negative", static_cast<long long>(size));
  if (buffer == nullptr && size > 0) return error(MPI_ERR_BUFFER, "the buffer is null");
  *where = std::make_shared<BsendBuffer>(buffer, buffer == MPI_BUFFER_AUTOMATIC ? 0 : size);
  return MPI_SUCCESS;
}

}  // namespace

void flush_buffers() {
  if (const auto buffer = own_buffer(); buffer != nullptr) flush_buffer(*buffer);
}

void detach_at_end(SessionBuffer& session) {
  const std::shared_ptr<BsendBuffer> buffer = session.get();
  if (buffer == nullptr) return;
  flush_buffer(*buffer);
  const std::scoped_lock lock(session.mutex);
  session.attached.reset();
}

bool has_no_buffered(const Comm& comm) {
  return comm.buffer == nullptr || comm.buffer->empty();
}

// ---- of the process -----------------------------------------------------------------------------

int buffer_attach(Call call, void* buffer, MPI_Count size) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  const std::scoped_lock lock(g_buffer_mutex);
  return told(call, attach_to(&g_buffer, buffer, size));
}

int buffer_detach(Call call, void* buffer_addr, CountOut size) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  std::shared_ptr<BsendBuffer> buffer = own_buffer();
  const int code = detach_from(&buffer, buffer_addr, size);
  const std::scoped_lock lock(g_buffer_mutex);
  if (code == MPI_SUCCESS) g_buffer.reset();
  return told(call, code);
}

int buffer_flush(Call call) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  flush_buffers();
  return MPI_SUCCESS;
}

int buffer_iflush(Call call, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  return told(call, iflush(own_buffer(), request));
}

// ---- of a communicator --------------------------------------------------------------------------

int comm_attach_buffer(Call call, MPI_Comm handle, void* buffer, MPI_Count size) {
  Comm* comm = nullptr;
  int code = read_comm(handle, &comm);
  if (code == MPI_SUCCESS) code = attach_to(&comm->buffer, buffer, size);
  return told(call, comm, code);
}

int comm_detach_buffer(Call call, MPI_Comm handle, void* buffer_addr, CountOut size) {
  Comm* comm = nullptr;
  int code = read_comm(handle, &comm);
  if (code == MPI_SUCCESS) code = detach_from(&comm->buffer, buffer_addr, size);
  return told(call, comm, code);
}

int comm_flush_buffer(Call call, MPI_Comm handle) {
  Comm* comm = nullptr;
  const int code = read_comm(handle, &comm);
  if (code == MPI_SUCCESS && comm->buffer != nullptr) flush_buffer(*comm->buffer);
  return told(call, comm, code);
}

int comm_iflush_buffer(Call call, MPI_Comm handle, MPI_Request* request) {
  Comm* comm = nullptr;
  int code = read_comm(handle, &comm);
  if (code == MPI_SUCCESS) code = iflush(comm->buffer, request);
  return told(call, comm, code);
}

// ---- of a session -------------------------------------------------------------------------------

namespace {

int read_session(MPI_Session handle, MpiSession** session) {
  *session = session_of(handle);
  return *session == nullptr ? bad_session(handle) : MPI_SUCCESS;
}

}  // namespace

int session_attach_buffer(Call call, MPI_Session handle, void* buffer, MPI_Count size) {
  MpiSession* session = nullptr;
  int code = read_session(handle, &session);
  if (code == MPI_SUCCESS) {
    const std::scoped_lock lock(session->buffer->mutex);
    code = attach_to(&session->buffer->attached, buffer, size);
  }
  return told(call, session, code);
}

int session_detach_buffer(Call call, MPI_Session handle, void* buffer_addr, CountOut size) {
  MpiSession* session = nullptr;
  int code = read_session(handle, &session);
  if (code == MPI_SUCCESS) {
    std::shared_ptr<BsendBuffer> buffer = session->buffer->get();
    code = detach_from(&buffer, buffer_addr, size);
    const std::scoped_lock lock(session->buffer->mutex);
    if (code == MPI_SUCCESS) session->buffer->attached.reset();
  }
  return told(call, session, code);
}

int session_flush_buffer(Call call, MPI_Session handle) {
  MpiSession* session = nullptr;
  const int code = read_session(handle, &session);
  if (code == MPI_SUCCESS)
    if (const auto buffer = session->buffer->get(); buffer != nullptr) flush_buffer(*buffer);
  return told(call, session, code);
}

int session_iflush_buffer(Call call, MPI_Session handle, MPI_Request* request) {
  MpiSession* session = nullptr;
  int code = read_session(handle, &session);
  if (code == MPI_SUCCESS) code = iflush(session->buffer->get(), request);
  return told(call, session, code);
}

}  // namespace heddle::mpi
