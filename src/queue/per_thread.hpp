// One T for each thread that asks, found without a lock or an atomic read-modify-write, destroyed when its thread ends or
// when the PerThread does, whichever comes first. For the shares of objects that any thread may use: TagPool's Locals.
//
//   PerThread<TagPool<>::Local> locals;
//   TagPool<>::Local& mine = locals.get(pool);   // made from `pool` at this thread's first call
//
// Invariants
//   A Seat (a thread's T) is in its thread's list and in its owner's; its T is made by its thread, and destroyed once, under
//   the owner's mutex, by the first of the two to end. The mutex lives as long as any of them.
//   An id is never used twice, so that a thread's memory of an owner that is gone never fits another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::queue {

namespace detail {

// A T of some thread, as its thread's list sees it.
class ThreadSeat {
 public:
  ThreadSeat() = default;
  ThreadSeat(const ThreadSeat&) = delete;
  ThreadSeat& operator=(const ThreadSeat&) = delete;
  virtual ~ThreadSeat() = default;
  virtual void end() = 0;                       // the thread ends
  [[nodiscard]] virtual bool over() const = 0;  // the owner has ended
};

// What the calling thread has, of all owners. The latest is looked at first and without a search.
class ThreadSeats {
 public:
  static ThreadSeats& mine();
  ThreadSeats(const ThreadSeats&) = delete;
  ThreadSeats& operator=(const ThreadSeats&) = delete;
  ~ThreadSeats();

  // Null: this thread has none of that owner.
  [[nodiscard]] void* find(std::uint64_t owner) { return owner == latest_owner_ ? latest_ : search(owner); }
  void add(std::uint64_t owner, void* value, std::shared_ptr<ThreadSeat> seat);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  static std::uint64_t new_owner();

 private:
  struct Entry {
    std::uint64_t owner;
    void* value;
    std::shared_ptr<ThreadSeat> seat;
  };

  ThreadSeats() = default;
  void* search(std::uint64_t owner);

  std::uint64_t latest_owner_ = 0;  // no owner has it
  void* latest_ = nullptr;
  std::vector<Entry> entries_;
};

}  // namespace detail

template <class T>
class PerThread {
 public:
  PerThread() : owner_(detail::ThreadSeats::new_owner()), shared_(std::make_shared<Shared>()) {}
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;
  // No thread is in get() or uses what it got.
  ~PerThread() {
    const std::lock_guard lock(shared_->mutex);
    for (const std::shared_ptr<Seat>& seat : shared_->seats) seat->close();
    shared_->seats.clear();
  }

  // The calling thread's T, made from the arguments at its first call, which allocates (and may throw); stays where it
  // is. Not from the destructor of a thread_local object.
  template <class... Arguments>
  [[nodiscard]] T& get(Arguments&&... arguments) {
    void* const found = detail::ThreadSeats::mine().find(owner_);
    return found != nullptr ? *static_cast<T*>(found) : make(std::forward<Arguments>(arguments)...);
  }

  // How many threads have one now.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->seats.size();
  }

 private:
  class Seat;
  struct Shared {
    std::mutex mutex;
    std::vector<std::shared_ptr<Seat>> seats;  // under the mutex
  };

  class Seat final : public detail::ThreadSeat {
   public:
    template <class... Arguments>
    explicit Seat(std::shared_ptr<Shared> shared, Arguments&&... arguments)
        : shared_(std::move(shared)), value_(std::in_place, std::forward<Arguments>(arguments)...) {}

    [[nodiscard]] T* value() { return &*value_; }
    // Under the mutex.
    void close() {
      value_.reset();
      over_.store(true, std::memory_order_relaxed);
    }
    void end() override {
      const std::lock_guard lock(shared_->mutex);
      if (!value_) return;
      close();
      std::erase_if(shared_->seats, [this](const std::shared_ptr<Seat>& seat) { return seat.get() == this; });
    }
    [[nodiscard]] bool over() const override { return over_.load(std::memory_order_relaxed); }

   private:
    std::shared_ptr<Shared> shared_;
    std::optional<T> value_;         // under the mutex, but for its thread's use
    std::atomic<bool> over_{false};  // relaxed: whether an entry can be swept away, sooner or later
  };

  template <class... Arguments>
  [[gnu::noinline, gnu::cold]] T& make(Arguments&&... arguments) {
    auto seat = std::make_shared<Seat>(shared_, std::forward<Arguments>(arguments)...);
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->seats.push_back(seat);
    }
    T& value = *seat->value();
    detail::ThreadSeats::mine().add(owner_, &value, std::move(seat));
    return value;
  }

  const std::uint64_t owner_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace heddle::queue
