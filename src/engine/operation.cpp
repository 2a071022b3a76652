#include "engine/operation.hpp"

namespace heddle::engine {

Piece Pieces::block(std::uint64_t index) const {
  if (segments_ != nullptr) {
    const heddle_segment& segment = segments_[index];
    return {static_cast<std::byte*>(segment.local), find_handle<RemoteRegion>(segment.remote.region.id),
            segment.remote.offset, segment.bytes};
  }
  return {local_ + index * shape_.local_stride, remote_, offset_ + index * shape_.remote_stride, shape_.block_bytes};
}

std::uint64_t Pieces::bytes() const {
  if (segments_ == nullptr) return shape_.blocks * shape_.block_bytes;
  std::uint64_t all = 0;
  for (std::uint64_t i = 0; i < shape_.blocks; ++i) all += segments_[i].bytes;
  return all;
}

bool Pieces::peek(Piece* piece) {
  for (; index_ < shape_.blocks; ++index_, within_ = 0) {
    *piece = block(index_);
    if (piece->bytes == 0) continue;
    piece->local += within_;
    piece->offset += within_;
    piece->bytes -= within_;
    return true;
  }
  return false;
}

void Pieces::advance(std::uint64_t bytes) {
  within_ += bytes;
  if (within_ < block(index_).bytes) return;
  ++index_;
  within_ = 0;
}

}  // namespace heddle::engine
