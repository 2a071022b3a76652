#include "harness/papers.hpp"

#include <algorithm>

namespace heddle::bench::harness {

namespace {

constexpr double kLlclPostCycles = 216;  // one thread, RDMA READ on Tofu

class Ratios {
 public:
  Ratios(const Record& ours, const std::vector<Record>& records, std::vector<Record>* out)
      : ours_(ours), key_(ours.key), records_(records), out_(out) {}

  void overhead() {
    if (key_.metric == "cycles" && key_.threads == 1) add("LLCL", kLlclPostCycles);
    if (key_.metric == "rate") {
      double best = 0;
      for (const Record& other : records_) {
        Key same = other.key;
        same.threads = key_.threads;
        same.workers = key_.workers;
        if (same == key_) best = std::max(best, other.median);
      }
      add("best", best);
    }
    if (key_.metric != "latency" || key_.sharing == "exclusive") return;
    const double alone = median_of([](Key& key) { with_own_workers(key, "exclusive"); });
    add("exclusive", alone);
    if (alone > 0) add("P added", ours_.p_ns, ours_.median - alone);
  }
  void duplex() {
    if (key_.processes != 2 || key_.threads == 1) return;
    for (const Record& other : records_) {
      const Key& its = other.key;
      const bool same = its.bench == key_.bench && its.op == key_.op && its.size_bytes == key_.size_bytes &&
                        its.memory == key_.memory && its.processes == 2 * key_.threads && its.threads == 1;
      if (!same || !other.against.empty()) continue;
      const bool own = its.transport == key_.transport;
      if (own || !is_heddle(its)) add(own ? "processes" : its.transport + " processes", other.median);
    }
  }
  void overlap() {
    const std::size_t end = std::min(key_.op.find('_'), key_.op.size());
    const std::string policy = key_.op.substr(end);
    if (key_.op.substr(0, end) == "communication" || key_.op.substr(0, end) == "compute") return;
    const double communication = median_of([&](Key& key) { key.op = "communication" + policy; });
    const double compute = median_of([&](Key& key) { key.op = "compute" + policy; });
    if (!(communication > 0) || !(compute > 0)) return;
    add("max", std::max(communication, compute));
    add("sum", communication + compute);
  }
  void network() {
    if (key_.transport == "heddle ofi") add("heddle ucx", median_of([](Key& key) { key.transport = "heddle ucx"; }));
    if (key_.sharing != "offload" || key_.metric != "rate") return;
    add("direct", median_of([](Key& key) { key.sharing = "shared"; }));
    add("own workers", median_of([](Key& key) { with_own_workers(key, "exclusive"); }));
  }
  void all() {
    if (key_.bench == "overhead") overhead();
    if (key_.bench == "fairness" && key_.op == "deviation") add("even share", kFairnessEven);
    if (key_.bench == "duplex") duplex();
    if (key_.bench == "convolution") add("none", median_of([](Key& key) { key.op = "none"; }));
    if (key_.bench == "overlap") overlap();
    if (key_.bench.starts_with("network_")) network();
    if (key_.bench == "mixed_job") add("shm alone", median_of([](Key& key) { key.transport = "shm"; }));
    if (key_.transport == "shmem" && key_.sharing == "multiple")
      add("contexts", median_of([](Key& key) { with_own_workers(key, "contexts"); }));
  }

 private:
  static void with_own_workers(Key& key, const char* sharing) {
    key.sharing = sharing;
    key.workers = key.threads;
  }
  // The value of another figure of the same run, whose key differs by `change`; 0: there is none.
  template <class Change>
  [[nodiscard]] double median_of(Change&& change) const {
    Key key = key_;
    change(key);
    if (key == key_) return 0;
    const auto found = std::find_if(records_.begin(), records_.end(),
                                    [&](const Record& other) { return other.against.empty() && other.key == key; });
    return found == records_.end() ? 0 : found->median;
  }
  void add(const std::string& against, double reference) { add(against, reference, ours_.median); }
  // A figure that adds nothing, or has nothing to compare with, has no ratio.
  void add(const std::string& against, double reference, double value) {
    if (!(reference > 0) || !(value > 0)) return;
    out_->push_back(ours_);
    out_->back().against = against;
    out_->back().ratio = value / reference;
  }

  const Record& ours_;
  const Key& key_;
  const std::vector<Record>& records_;
  std::vector<Record>* out_;
};

}  // namespace

void add_paper_ratios(const Record& ours, const std::vector<Record>& records, std::vector<Record>* out) {
  Ratios(ours, records, out).all();
}

}  // namespace heddle::bench::harness
