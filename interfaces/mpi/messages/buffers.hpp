// Buffered sends: the program's buffers, from which the room of the messages is taken.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>

#include "mpi/messages/message.hpp"

namespace heddle::mpi {

// A buffer that the program has attached, or one that grows as needed (MPI_BUFFER_AUTOMATIC).
class BsendBuffer {
 public:
  BsendBuffer(void* address, MPI_Count bytes) : address_(static_cast<std::byte*>(address)), bytes_(bytes) {}
  BsendBuffer(const BsendBuffer&) = delete;
  BsendBuffer& operator=(const BsendBuffer&) = delete;
  ~BsendBuffer() = default;

  [[nodiscard]] void* address() const { return automatic() ? MPI_BUFFER_AUTOMATIC : address_; }
  [[nodiscard]] MPI_Count bytes() const { return bytes_; }
  // Sends the data, which is copied. MPI_ERR_BUFFER: there is no room.
  int send(Comm& comm, const Data& data, int rank, int tag);
  // True: no message of the buffer is under way.
  bool empty();

 private:
  struct Piece {
    std::byte* begin = nullptr;  // in the buffer, or allocated
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> own;
    std::atomic<int> ended{-1};
  };
  [[nodiscard]] bool automatic() const { return address_ == MPI_BUFFER_AUTOMATIC; }
  Piece* take(std::size_t bytes);
  void reap();

  std::byte* const address_;
  const MPI_Count bytes_;
  std::mutex mutex_;         // guards the list
  std::list<Piece> pieces_;  // in the order of their addresses
};

// The buffer of a session, which its groups share.
struct SessionBuffer {
  std::mutex mutex;  // guards what is attached
  std::shared_ptr<BsendBuffer> attached;
  [[nodiscard]] std::shared_ptr<BsendBuffer> get() {
    const std::scoped_lock lock(mutex);
    return attached;
  }
};

// Uses the communicator's own buffer, or else that of the session from which it is derived, or else
// that of the process.
int send_buffered(Comm& comm, const Data& data, int rank, int tag);
// At MPI_Finalize: waits for the messages of the process's own buffer.
void flush_buffers();
// At MPI_Session_finalize: waits for its messages, and detaches it.
void detach_at_end(SessionBuffer& session);
// True: no message of the communicator's own buffer is under way.
bool has_no_buffered(const Comm& comm);

}  // namespace heddle::mpi
