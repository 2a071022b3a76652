// Memory that peers can reach, and its names at other ranks.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "context.hpp"

namespace heddle::python {

class Region {
 public:
  Region(std::shared_ptr<Context> context, std::shared_ptr<OpenRegion> open);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();
  // The region that an operation gets, or the region whose memory contains an array of
  // Context.zeros; null: none. ArgumentError: the array does not begin where the region does.
  static Region* of(nb::handle object);

  [[nodiscard]] heddle_region handle() const { return open_->handle; }
  // Peers are told of it.
  void name() const { open_->named.store(true, std::memory_order_relaxed); }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  // False: it is released, or the context has left.
  [[nodiscard]] bool open() const { return open_->exports.load(std::memory_order_acquire) >= 0; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return open() ? bytes_ : 0; }
  // One more memory view, or one less. False: it is released. The pages of an array live as long as
  // the views.
  [[nodiscard]] bool try_export();
  void end_export() {
    if (open_->pages.data() == nullptr) open_->exports.fetch_sub(1, std::memory_order_release);
  }
  // The size of its memory, also when it is released.
  [[nodiscard]] std::size_t exported_bytes() const { return bytes_; }
  // BufferError: arrays lie in it.
  void release();

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<OpenRegion> open_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class RemoteRegion {
 public:
  RemoteRegion(std::shared_ptr<Context> context, heddle_remote_region handle)
      : context_(std::move(context)), handle_(handle) {}
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;
  ~RemoteRegion();
  [[nodiscard]] heddle_remote at(std::uint64_t offset) const { return {handle_, offset}; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  // The remote address that an operation gets. TypeError: a region of this process, which has no
  // rank.
  static const RemoteRegion& of(nb::handle object) {
    const RemoteRegion* region = nullptr;
    if (!nb::try_cast(object, region) || region == nullptr) reject(object);
    return *region;
  }

 private:
  [[noreturn]] static void reject(nb::handle object);

  std::shared_ptr<Context> context_;
  heddle_remote_region handle_;
};

void bind_regions(nb::module_& module, nb::class_<Context>& context);

}  // namespace heddle::python
