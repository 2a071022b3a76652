// The view that each of the two transports has of the job: the same ranks, and its own part of each
// card.
//
// A rank publishes one card: a head, the part of NEAR, the part of FAR. So two ranks whose settings
// differ find out when one reads the other's card.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace heddle::transport::joint {

inline constexpr std::size_t kWays = 2;  // 0: near, 1: far

// Settings that must be the same in all ranks. They travel in the card.
struct Settings {
  std::array<std::string, kWays> names;
  std::uint64_t node_ranks = 0;      // HEDDLE_NODE_RANKS
  std::vector<std::uint32_t> nodes;  // by rank
};

// The bootstrap as one of the two sees it. It publishes nothing: it keeps the card that it is
// given, for the card of both.
class Share final : public bootstrap::Bootstrap {
 public:
  Share(bootstrap::Bootstrap& whole, const Settings& settings, std::size_t way)
      : whole_(whole), settings_(settings), way_(way) {}

  [[nodiscard]] const char* name() const override { return whole_.name(); }
  [[nodiscard]] std::uint32_t rank() const override { return whole_.rank(); }
  [[nodiscard]] std::uint32_t size() const override { return whole_.size(); }
  [[nodiscard]] const bootstrap::JobSecret& secret() const override { return whole_.secret(); }
  [[nodiscard]] std::uint32_t host(std::uint32_t rank) const override { return settings_.nodes[rank]; }
  [[nodiscard]] bool atomics_beside_processors() const override { return true; }
  [[nodiscard]] const queue::Bell<>* common_bell() const override { return common_bell_; }
  // Before the transport is opened on it.
  void set_common_bell(const queue::Bell<>* bell) { common_bell_ = bell; }
  // Once; the descriptor stays the caller's.
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override;
  // The card that was published, for publish_both(); empty: none yet.
  [[nodiscard]] const bootstrap::Card& card() const { return card_; }
  // CONFIG, VERSION: that rank has other settings. Otherwise as `whole`.
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t rank) override;
  void ask_ahead(std::uint32_t rank) override { whole_.ask_ahead(rank); }
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return whole_.card_bell(); }
  // Not supported: a transport takes no part in the job's exchanges.
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override;
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override;
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return whole_.failed(rank); }
  void note_disconnected() override { whole_.note_disconnected(); }
  void leave() override {}
  [[noreturn]] void abort(int code, const char* message) override {
    whole_.abort(code, message);
    std::_Exit(code);  // for GCC 12, which forgets that the call above does not return
  }

 private:
  bootstrap::Bootstrap& whole_;
  const Settings& settings_;
  const std::size_t way_;
  const queue::Bell<>* common_bell_ = nullptr;
  bool published_ = false;
  bootstrap::Card card_;
};

// Publishes the card of this rank, made of the cards that the two have published. CONFIG: both show
// a descriptor, and there is room for one. SIZE: the card is too long.
base::Status publish_both(bootstrap::Bootstrap& whole, const Settings& settings, const Share& near, const Share& far);

}  // namespace heddle::transport::joint
