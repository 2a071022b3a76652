// Lists that need no memory when memory is short: linked items, pools of a fixed number of items,
// vectors with room reserved before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace heddle::transport::network {

using Bytes = std::vector<std::byte>;

// Reserves room: the list needs no memory until it has more than `count` items.
template <class T>
void make_room(std::vector<T>* list, std::size_t count) {
  if (list->capacity() < count) list->reserve(2 * count);
}

// Linked by `next`.
template <class T>
struct List {
  T* first = nullptr;
  T* last = nullptr;
  [[nodiscard]] bool empty() const { return first == nullptr; }
  void append(T* item) {
    item->next = nullptr;
    (last == nullptr ? first : last->next) = item;
    last = item;
  }
  T* take() {
    T* item = first;
    first = item->next;
    if (first == nullptr) last = nullptr;
    return item;
  }
};

// Items of one kind that are taken and given back.
template <class T>
class Pool {
 public:
  explicit Pool(std::uint32_t count) : items_(new T[count]), count_(count) {
    for (std::uint32_t i = count; i-- > 0;) give_back(&items_[i]);
  }
  ~Pool() {
    if (kept_) static_cast<void>(items_.release());
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // A library may still write to the items: they stay until the process ends.
  void keep() { kept_ = true; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::span<T> all() const { return {items_.get(), count_}; }
  // The item that take() returns next; null: there is none.
  [[nodiscard]] T* front() const { return free_; }
  T* take() {
    T* item = free_;
    take_front(item);
    return item;
  }
  // Takes the item that front() has returned.
  void take_front(T* item) { free_ = item->next; }
  // Gives back what the caller has linked before front().
  void set_front(T* item) { free_ = item; }
  void give_back(T* item) {
    item->next = free_;
    free_ = item;
  }

 private:
  std::unique_ptr<T[]> items_;
  std::uint32_t count_;
  bool kept_ = false;
  T* free_ = nullptr;
};

}  // namespace heddle::transport::network
