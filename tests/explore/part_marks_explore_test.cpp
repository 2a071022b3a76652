// src/queue: parts that threads mark while another one opens the run; the code itself.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/part_marks.hpp"

namespace heddle::explore::part_marks_explore_test {
namespace {

enum class Bug { none, collects_before_it_opens };

// Planted: a compare-and-swap that is none.
template <class T>
class Torn : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    const T found = this->load(std::memory_order_seq_cst);
    if (found != expected) return false;
    this->store(desired, order);
    return true;
  }
};

// Planted: a store that is seen after later loads of its thread, though after its earlier stores.
template <class T>
class SeenLate : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  void store(T value, std::memory_order) { Atomic<T>::store(value, std::memory_order_release); }
};

// Threads that mark one part each (kSame: all the same one), and one that opens the run: the places
// are there from then on.
template <std::uint32_t kMarkers, bool kSame = false, Bug kBug = Bug::none, template <class> class A = Atomic>
struct MarksModel final : Model {
  using Marks = queue::PartMarks<A>;
  static constexpr std::uint32_t kParts = kSame ? 1 : kMarkers;
  static constexpr std::uint64_t kRun = 1;

  Marks marks{kParts, false};
  Plain<int> places;
  std::array<Plain<int>, kParts> data;
  std::array<Plain<int>, kParts> posts;
  std::array<int, kMarkers> refused{};

  MarksModel() {
    places.name("the places");
    for (auto& part : data) part.name("data");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kMarkers + 1; }

  void run(std::uint32_t thread) override {
    if (thread == kMarkers) return open();
    const std::uint32_t part = kSame ? 0 : thread;
    if (!kSame) data[part].store(7);
    switch (marks.mark(part, kRun)) {
      case Marks::Marked::twice:
        refused[thread] = 1;
        return;
      case Marks::Marked::waiting:
        return;
      case Marks::Marked::claimed:
        return post(part);
    }
  }
  void open() {
    places.store(3);
    if (kBug == Bug::collects_before_it_opens) collect();
    marks.open(kRun);
    if (kBug != Bug::collects_before_it_opens) collect();
  }
  void collect() {
    marks.collect([this](std::uint32_t part) { post(part); });
  }
  void post(std::uint32_t part) {
    check(places.load() == 3, "the places are known to who posts");
    check(kSame || data[part].load() == 7, "the data of a part is there for who posts it");
    posts[part].store(posts[part].load() + 1);
    marks.end(part);
  }
  void finish() override {
    int all = 0;
    for (std::uint32_t part = 0; part < kParts; ++part) {
      check(posts[part].load() != 0, "no part is left marked");
      check(posts[part].load() == 1, "each is posted once");
      check(marks.has_ended(part, kRun), "it has ended");
    }
    for (const int one : refused) all += one;
    check(all == (kSame ? static_cast<int>(kMarkers) - 1 : 0), "who marks a part that is marked is told");
  }
};

// A thread that marks the part of the next run after the first run has ended, while the thread that
// opened the first may still look.
template <template <class> class A = Atomic>
struct NextRunModel final : Model {
  queue::PartMarks<A> marks{1, false};
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    using Marked = typename queue::PartMarks<A>::Marked;
    if (thread == 1) {
      marks.open(1);
      marks.collect([this](std::uint32_t part) {
        check(marks.run_of(part) == 1, "only what is open is claimed");
        marks.end(part);
      });
      return;
    }
    if (marks.mark(0, 1) == Marked::claimed) marks.end(0);
    if (marks.has_ended(0, 1)) check(marks.mark(0, 2) == Marked::waiting, "the next run is not open");
  }
  void finish() override { check(!marks.is_claimed(0, 2) && !marks.has_ended(0, 2), "the next run waits"); }
};

TEST(PartMarks, HoldInAllSchedules) {
  expect_holds<NextRunModel<>>("marks of the next run", kOrdered);
  expect_holds<MarksModel<1>>("marks, 1 thread and who opens", kOrdered);
  expect_holds<MarksModel<2>>("marks, 2 threads and who opens", kOrdered);
  expect_holds<MarksModel<2, true>>("marks, 2 threads on one part", kOrdered);
}

TEST(PartMarks, PlantedBugsAreFound) {
  expect_finds<MarksModel<1, false, Bug::collects_before_it_opens>>("collects before it opens", kOrdered,
                                                                    "left marked");
  expect_finds<MarksModel<1, false, Bug::none, SeenLate>>("opens with a store that is seen late", kOrdered,
                                                          "left marked");
  expect_finds<MarksModel<1, false, Bug::none, RelaxedStores>>("opens without release", kOrdered, "race");
  expect_finds<MarksModel<2, true, Bug::none, Torn>>("two threads mark one part", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore::part_marks_explore_test
