#include "tap/snapshot.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace heddle::tap {
namespace {

constexpr std::uint32_t kForm = 0x34'4e'53'48;  // changes with the layout
constexpr std::size_t kMostLines = 256;
constexpr std::size_t kMostParts = 12;  // of a list of ranks

// Does not cut inside a character of several bytes.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

// Control characters of ASCII, and those of Latin 1 in UTF-8: terminals obey both.
void blank_controls(std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 || c == 0x7f) text[at] = ' ';
    if (c != 0xc2 || at + 1 == text.size()) continue;
    const auto next = static_cast<unsigned char>(text[at + 1]);
    if (next >= 0x80 && next < 0xa0) text[at] = text[at + 1] = ' ';
  }
}

class Writer {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void flag(bool value) { number(static_cast<std::uint8_t>(value)); }
  void cause(Cause value) { number(static_cast<std::uint8_t>(value)); }
  void text(const std::string& value) {
    const std::string_view kept = cut(value, kMostText);
    number(static_cast<std::uint16_t>(kept.size()));
    const std::size_t at = bytes_.size();
    bytes_.resize(at + kept.size());
    std::copy_n(reinterpret_cast<const std::byte*>(kept.data()), kept.size(), bytes_.data() + at);
  }
  template <class T, class Each>
  void list(const std::vector<T>& values, std::size_t most, Each&& each) {
    const std::size_t count = std::min(values.size(), most);
    number(static_cast<std::uint16_t>(count));
    for (std::size_t i = 0; i < count; ++i) each(*this, values[i]);
  }
  template <class T, class Each>
  void maybe(const std::optional<T>& value, Each&& each) {
    flag(value.has_value());
    if (value.has_value()) each(*this, *value);
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// After an error it reads nothing more, and returns zeros.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  void number(T& value) {
    value = T{};
    if (!has(sizeof value)) return;
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
  }
  void flag(bool& value) { value = small(1) == 1; }
  void cause(Cause& value) { value = static_cast<Cause>(small(static_cast<std::uint8_t>(kLastCause))); }
  void text(std::string& value) {
    const std::size_t length = count(kMostText);
    if (!has(length)) return;
    value.assign(reinterpret_cast<const char*>(left_.data()), length);
    left_ = left_.subspan(length);
    blank_controls(value);
  }
  // One by one, so that no more memory is taken than bytes have come.
  template <class T, class Each>
  void list(std::vector<T>& values, std::size_t most, Each&& each) {
    const std::size_t length = count(most);
    if (!has(length)) return;  // each has one byte at least
    for (std::size_t i = 0; i < length && good_; ++i) each(*this, values.emplace_back());
  }
  template <class T, class Each>
  void maybe(std::optional<T>& value, Each&& each) {
    bool there = false;
    flag(there);
    if (there) each(*this, value.emplace());
  }
  [[nodiscard]] bool ended_well() const { return good_ && left_.empty(); }
  [[nodiscard]] bool good() const { return good_; }

 private:
  bool has(std::size_t bytes) {
    good_ = good_ && bytes <= left_.size();
    return good_;
  }
  std::uint8_t small(std::uint8_t last) {
    std::uint8_t value = 0;
    number(value);
    good_ = good_ && value <= last;
    return good_ ? value : std::uint8_t{0};
  }
  std::size_t count(std::size_t most) {
    std::uint16_t value = 0;
    number(value);
    good_ = good_ && value <= most;
    return good_ ? value : 0;
  }

  std::span<const std::byte> left_;
  bool good_ = true;
};

template <class T, class Value>
concept Of = std::same_as<std::remove_const_t<T>, Value>;

// Each structure's layout stands here once, for both directions.
template <class Io>
void pass(Io& io, Of<Awaited> auto& value) {
  io.cause(value.cause);
  io.number(value.rank);
  io.number(value.worker);
  io.number(value.bytes);
  io.text(value.what);
  io.text(value.tag);
}

template <class Io>
void pass(Io& io, Of<Step> auto& value) {
  io.number(value.team);
  io.number(value.number);
  io.number(value.size);
  io.text(value.team_name);
  io.text(value.operation);
}

template <class Io>
void pass(Io& io, Of<Kept> auto& value) {
  io.number(value.rank);
  io.number(value.worker);
  io.number(value.messages);
  io.text(value.tag);
}

template <class Io>
void pass(Io& io, Of<Unopened> auto& value) {
  io.number(value.rank);
  io.number(value.worker);
  io.number(value.messages);
}

template <class Io>
void pass(Io& io, Of<std::string> auto& value) {
  io.text(value);
}

constexpr auto kEach = [](auto& io, auto& value) { pass(io, value); };

template <class Io>
void pass(Io& io, Of<Wait> auto& value) {
  io.text(value.call);
  io.text(value.awaited);
  io.number(value.waited_ns);
  io.number(value.thread);
  io.number(value.worker);
  io.list(value.things, kMostListed, kEach);
  io.maybe(value.step, kEach);
}

template <class Io>
void pass(Io& io, Of<WorkerState> auto& value) {
  io.number(value.index);
  io.flag(value.seen);
  io.flag(value.held);
  io.number(value.tasks);
  io.list(value.under_way, kMostListed, kEach);
  io.list(value.kept, kMostListed, kEach);
  io.flag(value.runs_task);
  io.flag(value.untaken);
  io.flag(value.internal);
  io.number(value.unhandled);
  io.list(value.unopened, kMostListed, kEach);
}

template <class Io>
void pass(Io& io, Of<Passed> auto& value) {
  io.number(value.team);
  io.number(value.number);
}

template <class Io>
void pass(Io& io, Of<std::uint64_t> auto& value) {
  io.number(value);
}

template <class Io>
void pass(Io& io, Of<Snapshot> auto& value) {
  io.list(value.waits, kMostListed, kEach);
  io.list(value.workers, kMostListed, kEach);
  io.list(value.steps, kMostListed, kEach);
  io.list(value.passed, kMostListed, kEach);
  io.list(value.held, kMostListed, kEach);
  io.list(value.lines, kMostLines, kEach);
}

std::vector<std::byte> encoded(const Snapshot& snapshot) {
  Writer writer;
  writer.number(kForm);
  pass(writer, snapshot);
  return writer.take();
}

}  // namespace

std::string list_of(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  std::size_t parts = 0;
  for (std::size_t at = 0; at < ranks.size(); ++parts) {
    if (parts == kMostParts) return text + " and " + std::to_string(ranks.size() - at) + " more";
    std::size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - at == 2) end = at + 1;  // two read better one by one
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[at]);
    if (end - at > 1) text += "-" + std::to_string(ranks[end - 1]);
    at = end;
  }
  return text;
}

std::vector<std::byte> encode(const Snapshot& snapshot) {
  std::vector<std::byte> bytes = encoded(snapshot);
  if (bytes.size() <= kMostBytes) return bytes;
  Snapshot less = snapshot;
  less.lines.clear();
  bytes = encoded(less);
  if (bytes.size() <= kMostBytes) return bytes;
  less.workers.clear();
  less.steps.clear();
  return encoded(less);
}

base::Result<Snapshot> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  std::uint32_t form = 0;
  reader.number(form);
  Snapshot snapshot;
  if (bytes.size() <= kMostBytes && reader.good() && form == kForm) {
    pass(reader, snapshot);
    if (reader.ended_well()) return snapshot;
  }
  return base::fail(HEDDLE_ERR_PROTOCOL, "%zu bytes are not a snapshot of what a rank waits for", bytes.size());
}

}  // namespace heddle::tap
