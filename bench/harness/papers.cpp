#include "harness/papers.hpp"

#include <algorithm>

#include "harness/fairness.hpp"

namespace heddle::bench::harness {

namespace {

constexpr double kLlclPostCycles = 216;  // one thread, RDMA READ on Tofu

class Ratios {
 public:
  Ratios(const Record& ours, const std::vector<Record>& records, std::vector<Record>* out)
      : ours_(ours), records_(records), out_(out) {}

  void overhead() {
    const Key& key = ours_.key;
    if (key.metric == "cycles" && key.threads == 1) add("LLCL", ours_.median / kLlclPostCycles);
    if (key.metric == "rate") {
      double best = 0;
      each([&](const Record& other) {
        if (same_but_threads(other)) best = std::max(best, other.median);
      });
      add("best", ours_.median / best);
    }
    if (key.metric != "latency" || key.sharing == "exclusive") return;
    Key alone = key;
    alone.sharing = "exclusive";
    alone.workers = key.threads;
    each([&](const Record& other) {
      if (other.key != alone) return;
      add("exclusive", ours_.median / other.median);
      add("P added", (ours_.median - other.median) / ours_.p_ns);
    });
  }
  void fairness() {
    if (ours_.key.op == "deviation") add("even share", ours_.median / kFairnessEven);
  }

  void duplex() {
    const Key& key = ours_.key;
    if (key.processes != 2 || key.threads == 1) return;
    each([&](const Record& other) {
      const Key& its = other.key;
      if (its.bench != key.bench || its.op != key.op || its.size_bytes != key.size_bytes || its.memory != key.memory ||
          its.processes != 2 * key.threads || its.threads != 1) {
        return;
      }
      const bool own = its.transport == key.transport;
      if (own || !is_heddle(its)) add(own ? "processes" : its.transport + " processes", ours_.median / other.median);
    });
  }

  // Of no paper: another thread posts, beside posting oneself; two transports beside one.
  void network() {
    Key direct = ours_.key;
    if (direct.sharing != "offload" || direct.metric != "rate") return;
    for (const char* sharing : {"shared", "exclusive"}) {
      direct.sharing = sharing;
      direct.workers = direct.sharing == "exclusive" ? direct.threads : 1;
      each([&](const Record& other) {
        if (other.key == direct)
          add(direct.sharing == "shared" ? "direct" : "own workers", ours_.median / other.median);
      });
    }
  }
  void mixed() {
    Key alone = ours_.key;
    alone.transport = "shm";
    if (alone == ours_.key) return;
    each([&](const Record& other) {
      if (other.key == alone) add("shm alone", ours_.median / other.median);
    });
  }

  void convolution() {
    Key none = ours_.key;
    none.op = "none";
    if (none == ours_.key) return;
    each([&](const Record& other) {
      if (other.key == none) add("none", ours_.median / other.median);
    });
  }

  void overlap() {
    const std::string& op = ours_.key.op;
    const std::size_t end = std::min(op.find('_'), op.size());
    const std::string policy = op.substr(end);
    if (op.substr(0, end) == "communication" || op.substr(0, end) == "compute") return;
    const double communication = median_of("communication" + policy);
    const double compute = median_of("compute" + policy);
    if (!(communication > 0) || !(compute > 0)) return;
    add("max", ours_.median / std::max(communication, compute));
    add("sum", ours_.median / (communication + compute));
  }

 private:
  // Of the same participant's figure with another name; 0: it was not measured.
  [[nodiscard]] double median_of(const std::string& op) {
    Key key = ours_.key;
    key.op = op;
    double median = 0;
    each([&](const Record& other) {
      if (other.key == key) median = other.median;
    });
    return median;
  }
  template <class Use>
  void each(Use&& use) {
    for (const Record& other : records_) {
      if (other.against.empty()) use(other);
    }
  }
  [[nodiscard]] bool same_but_threads(const Record& other) const {
    Key key = other.key;
    key.threads = ours_.key.threads;
    key.workers = ours_.key.workers;
    return key == ours_.key;
  }
  // What adds nothing, or has nothing beside it, has no ratio.
  void add(const std::string& against, double ratio) {
    if (!(ratio > 0) || !(ratio < 1e9)) return;
    Record one = ours_;
    one.against = against;
    one.ratio = ratio;
    out_->push_back(one);
  }

  const Record& ours_;
  const std::vector<Record>& records_;
  std::vector<Record>* out_;
};

}  // namespace

void add_paper_ratios(const Record& ours, const std::vector<Record>& records, std::vector<Record>* out) {
  Ratios ratios(ours, records, out);
  if (ours.key.bench == "overhead") ratios.overhead();
  if (ours.key.bench == "fairness") ratios.fairness();
  if (ours.key.bench == "duplex") ratios.duplex();
  if (ours.key.bench == "convolution") ratios.convolution();
  if (ours.key.bench == "overlap") ratios.overlap();
  if (ours.key.bench.starts_with("network_")) ratios.network();
  if (ours.key.bench == "mixed_job") ratios.mixed();
}

}  // namespace heddle::bench::harness
