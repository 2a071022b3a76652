// The contents of the page: the answer, cards, charts and tables, as the data of its script.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "driver/driver.hpp"
#include "harness/options.hpp"
#include "report/report.hpp"

namespace heddle::bench::report {

namespace {

using harness::BenchRecord;
using Json = nlohmann::ordered_json;

constexpr double kManyfold = 40;  // figures that differ by more need a logarithmic axis

// A figure and where it comes from.
struct Figure {
  const BenchRecord* record;
  const NamedResults* run;
  bool later = false;     // another run, given behind this one, has it as well
  bool repeated = false;  // another run has it as well
  std::size_t index = 0;  // among all figures of the page
};

bool is_policy_bench(const std::string& bench) {
  return bench == "convolution" || bench == "compute" || bench == "reaction";
}

// Figures of one subject stand in one chart. The subject is what they measure, not how it was done.
std::string subject_of(const harness::RecordKey& key) {
  const std::string& op = key.op;
  if (is_policy_bench(key.bench)) return "by progress policy";
  if (key.bench == "limit") return key.metric == "bandwidth" ? "copies" : "cache lines";
  if (key.bench == "bandwidth" && op.starts_with("memcpy")) return op == "memcpy" ? "put" : "get";
  const std::string first = op.substr(0, op.find('_'));
  if (key.bench == "overlap" || key.bench == "fairness" || harness::contains(harness::kCollectiveForms, first))
    return first;
  const bool messages = key.bench == "pingpong" || key.bench == "rate";
  return messages && op == "tagged" ? "am" : op;
}

// Sizes make lines, but for those of cache lines, which are bars.
bool by_size(const std::string& subject, const std::set<std::uint64_t>& sizes) {
  return sizes.size() > 1 && subject != "cache lines";
}

// The place of a figure in a chart of bars, by number and then by name.
using Group = std::pair<std::uint64_t, std::string>;
Group group_of(const harness::RecordKey& key) {
  if (key.bench == "limit") return {0, key.op};
  if (key.bench == "fairness" && key.op.find('_') != std::string::npos) {
    const std::string number = key.op.substr(key.op.find('_') + 1);
    return {std::strtoul(number.c_str(), nullptr, 10), number};
  }
  if (key.bench == "duplex") {
    const std::uint32_t pairs = key.processes / 2 * key.threads;
    return {pairs, std::to_string(pairs) + (pairs == 1 ? " pair" : " pairs")};
  }
  std::string text = std::to_string(key.threads) + (key.threads == 1 ? " thread" : " threads");
  if (key.processes > 2) text = std::to_string(key.processes) + " processes, " + text;
  return {std::uint64_t{key.processes} << 32 | key.threads, text};
}

// The participant and its way of doing it: the name of a line or of bars.
std::string series_of(const harness::RecordKey& key, const std::string& subject) {
  static const std::set<std::string> usual = {"exclusive", "own", "none", "single", "multiple", ""};
  std::string name = key.transport == "limit" ? key.op : library_name(key.transport);
  if (key.transport != "limit" && key.bench != "fairness" && key.op != subject) {
    name += ", " + (key.op.starts_with(subject + "_") ? key.op.substr(subject.size() + 1) : key.op);
  }
  if (!usual.contains(key.sharing)) name += ", " + key.sharing;
  if (key.memory != "allocated") name += ", " + key.memory;
  if (key.bench == "duplex") name += key.processes > 2 ? ", processes" : ", threads";
  return key.bench == "limit" && subject == "cache lines" ? "the machine" : name;
}

// The usual colour of each, as long as nobody else in the chart has it.
std::string colour_of(const harness::RecordKey& key, std::set<std::string>* taken) {
  static const std::map<std::string, std::string> usual = {
      {"exclusive", "#e8590c"}, {"auto", "#e8590c"},  {"shared", "#f0a500"},  {"offload", "#0ca678"},
      {"delegate", "#e64980"},  {"ucx", "#3b82d6"},   {"openmpi", "#37a147"}, {"mpich", "#12b0c4"},
      {"oshmem", "#a34fc0"},    {"limit", "#8a94a0"}, {"shmem", "#9c6b30"}};
  static const char* const spare[] = {"#7c6cf0", "#94a82b", "#c2255c", "#5b7083",
                                      "#0b7285", "#b08968", "#d6a2e8", "#2b8a3e"};
  const bool mode = harness::is_heddle(key) && key.transport != "shmem";
  const auto found = usual.find(mode ? key.sharing : key.transport);
  if (found != usual.end() && taken->insert(found->second).second) return found->second;
  for (const char* colour : spare) {
    if (taken->insert(colour).second) return colour;
  }
  return "#8a94a0";
}

// The text that compares a figure with others, and its tone.
Json notes_of(const Figure& figure) {
  const BenchRecord& record = *figure.record;
  Json out = Json::array();
  const auto say = [&](const std::string& text, const char* tone) { out.push_back({{"text", text}, {"tone", tone}}); };
  for (const BenchRecord& ratio : figure.run->results.records) {
    if (ratio.against.empty() || ratio.key != record.key || ratio.distance != record.distance) continue;
    const BenchRecord* peer = harness::peer_of(ratio, figure.run->results.records);
    if (peer == nullptr || !(peer->median > 0)) {
      say(ratio_words(record, ratio.ratio, ratio.against), "plain");
      continue;
    }
    const harness::Standing stands = harness::standing(record, *peer);
    say(beside_words(record, *peer) + " (" + figure_text(*peer) + ")", stands == harness::Standing::ahead    ? "good"
                                                                       : stands == harness::Standing::behind ? "bad"
                                                                                                             : "plain");
  }
  if (record.distance != "near") say("cores " + record.distance, "plain");
  if (!record.verified) say("wrong result", "bad");
  return out;
}

// All text about a figure: in a table, and under the mouse.
Json json_of(const Figure& figure, bool several_runs) {
  const BenchRecord& record = *figure.record;
  const harness::RecordKey& key = record.key;
  std::string op = key.op + (key.bench == "overhead" || key.bench == "atomics" ? " " + key.metric : "");
  if (key.processes > 2) op += ", " + std::to_string(key.processes) + " processes";
  return {{"op", op},
          {"on", series_of(key, key.op) + (several_runs ? " · " + figure.run->name : "")},
          {"ours", harness::is_heddle(key)},
          {"bytes", driver::size_text(key.size_bytes)},
          {"threads", key.threads},
          {"figure", figure_text(record)},
          {"interval", figure_text(record.low95) + " – " + figure_text(record.high95)},
          {"noise", noise_words(record)},
          {"repeats", record.repeats},
          {"p", figure_text(record.p_ns)},
          {"notes", notes_of(figure)},
          {"command", command_for({&record}, figure.run->results.origin.command)},
          {"y", record.median},
          {"low", record.low95},
          {"high", record.high95}};
}

class Chart {
 public:
  explicit Chart(std::vector<Figure> figures) : figures_(std::move(figures)), key_(figures_.front().record->key) {
    std::set<std::uint64_t> sizes;
    double low = 1e300;
    double high = 0;
    for (const Figure& one : figures_) {
      sizes.insert(one.record->key.size_bytes);
      places_[group_of(one.record->key)] = 0;
      if (one.record->median > 0) low = std::min(low, one.record->median);
      high = std::max(high, one.record->median);
    }
    lines_ = by_size(subject_of(key_), sizes);
    logarithmic_ = high > 0 && (lines_ || high > kManyfold * low);
    for (auto& [group, place] : places_) {
      place = names_.size();
      names_.push_back(group.second);
    }
  }

  Json json() {
    const std::string subject = subject_of(key_);
    for (const Figure& one : figures_) add(one, subject);
    // One number is no picture.
    if (series_.size() < 2 && (lines_ || names_.size() < 2) && points_.begin()->second.size() < 2) return {};
    Json series = Json::array();
    for (const bool ours : {true, false}) {
      for (auto& one : series_) {
        if (one["ours"].get<bool>() == ours) series.push_back(one);
      }
    }
    std::vector<const BenchRecord*> records;
    for (const Figure& one : figures_) {
      if (!one.later) records.push_back(one.record);
    }
    const bool larger = harness::larger_is_better(key_.metric);
    std::string unit = key_.unit == "Mop/s" ? "million per second" : key_.unit;
    unit += larger ? ", higher is better" : key_.unit == "callbacks" ? "" : ", lower is better";
    std::string name = subject;
    if (lines_ && key_.threads > 1) name += ", " + std::to_string(key_.threads) + " threads";
    if (lines_ && key_.processes > 2) name += ", " + std::to_string(key_.processes) + " processes";
    return {{"name", name},     {"meaning", meaning(subject)},
            {"unit", unit},     {"lines", lines_},
            {"groups", names_}, {"logarithmic", logarithmic_},
            {"series", series}, {"command", command_for(records, figures_.back().run->results.origin.command)}};
  }

 private:
  void add(const Figure& figure, const std::string& subject) {
    const harness::RecordKey& key = figure.record->key;
    const std::string who = series_of(key, subject);
    std::string name = who + (figure.repeated ? " · " + figure.run->name : "");
    const std::uint64_t place = lines_ ? key.size_bytes : places_.at(group_of(key));
    // For programs, figures of near and of far cores stand side by side.
    if (points_[name].contains(place)) name += ", cores " + figure.record->distance;
    if (points_[name].empty()) {
      if (!colours_.contains(who)) colours_[who] = colour_of(key, &taken_);
      const bool ours = harness::is_heddle(key);
      const bool aside = key.memory == "registered" || key.op == "tagged" || (!ours && key.sharing == "shared");
      series_.push_back({{"name", name},
                         {"colour", colours_[who]},
                         {"ours", ours},
                         {"faint", figure.later},
                         {"dashed", aside || figure.later || key.transport == "limit"},
                         {"hidden", figure.later && !ours},
                         {"points", Json::array()}});
    }
    points_[name].insert(place);
    for (Json& one : series_) {
      if (one["name"] != name) continue;
      one["points"].push_back({{"x", place}, {"figure", figure.index}});
    }
  }

  std::vector<Figure> figures_;
  harness::RecordKey key_;
  bool lines_ = false;
  bool logarithmic_ = false;
  std::vector<std::string> names_;                         // of groups
  std::map<Group, std::uint64_t> places_;                  // in names_
  std::map<std::string, std::set<std::uint64_t>> points_;  // by series
  std::map<std::string, std::string> colours_;
  std::set<std::string> taken_;
  std::vector<Json> series_;
};

// Charts in the order in which their figures were measured. If sizes vary, each number of threads
// has a chart of its own.
Json charts_of(const std::vector<Figure>& figures) {
  using Name = std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>;
  std::map<std::pair<std::string, std::string>, std::set<std::uint64_t>> sizes;
  const auto subject = [](const Figure& one) { return std::pair(subject_of(one.record->key), one.record->key.metric); };
  for (const Figure& one : figures) sizes[subject(one)].insert(one.record->key.size_bytes);
  std::vector<Name> order;
  std::map<Name, std::vector<Figure>> charts;
  for (const Figure& one : figures) {
    const bool lines = by_size(subject(one).first, sizes[subject(one)]);
    const harness::RecordKey& key = one.record->key;
    const Name name{subject(one).first, key.metric, lines ? key.threads : 0, lines ? key.processes : 0};
    if (charts[name].empty()) order.push_back(name);
    charts[name].push_back(one);
  }
  Json out = Json::array();
  for (const Name& name : order) {
    if (Json chart = Chart(charts[name]).json(); !chart.is_null()) out.push_back(chart);
  }
  return out;
}

Json cards_of(const NamedResults& run) {
  static const struct {
    const char *what, *bench, *op;
    std::uint32_t threads;
    std::uint64_t size;
  } cards[] = {{"Put, 8 bytes, one way", "pingpong", "put", 1, 8},
               {"Active message, 8 bytes, one way", "pingpong", "am", 1, 8},
               {"Puts of 8 bytes, one thread", "rate", "put", 1, 8},
               {"Active messages of 8 bytes, two threads", "rate", "am", 2, 8},
               {"Put bandwidth, 1 MiB", "bandwidth", "put", 1, 1 << 20},
               {"Random updates (GUPS, atomic), one thread", "gups", "atomic", 1, 8}};
  Json out = Json::array();
  for (const auto& card : cards) {
    const auto& all = run.results.records;
    const auto found = std::find_if(all.begin(), all.end(), [&](const BenchRecord& one) {
      const harness::RecordKey& key = one.key;
      return one.against.empty() && harness::is_heddle(key) && key.bench == card.bench && key.op == card.op &&
             key.threads == card.threads && key.size_bytes == card.size && key.memory == "allocated";
    });
    if (found == all.end()) continue;
    out.push_back(
        {{"what", card.what},
         {"figure", figure_text(found->median)},
         {"unit", found->key.unit},
         {"noise", noise_words(*found)},
         {"notes", notes_of({.record = &*found, .run = &run, .later = false, .repeated = false, .index = 0})}});
  }
  return out;
}

Json comparisons_of(const std::vector<NamedResults>& runs) {
  Json out = Json::array();
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Comparison with = compare(runs[0].results, runs[i].results);
    if (with.figures.empty()) continue;
    Json rows = Json::array();
    for (const Compared& one : with.figures) {
      const harness::Standing stands = one.change.standing;
      rows.push_back({{"figure", name_of(*one.after)},
                      {"on", series_of(one.after->key, one.after->key.op)},
                      {"before", figure_text(*one.before)},
                      {"after", figure_text(*one.after)},
                      {"words", one.change.words},
                      {"beyond", stands != harness::Standing::level},
                      {"tone", stands == harness::Standing::level || !harness::is_heddle(one.after->key) ? "plain"
                               : stands == harness::Standing::ahead                                      ? "good"
                                                                                                         : "bad"}});
    }
    out.push_back({{"before", runs[0].name}, {"after", runs[i].name}, {"summary", with.summary}, {"rows", rows}});
  }
  return out;
}

// The figures of each bench, in the order in which they were measured.
std::vector<std::pair<std::string, std::vector<Figure>>> benches_of(const std::vector<NamedResults>& runs) {
  std::vector<std::pair<std::string, std::vector<Figure>>> out;
  std::map<harness::RecordKey, std::set<const NamedResults*>> seen;
  std::size_t index = 0;
  for (const NamedResults& run : runs) {
    for (const BenchRecord& one : run.results.records) seen[one.key].insert(&run);
  }
  for (const NamedResults& run : runs) {
    for (const BenchRecord& one : run.results.records) {
      if (!one.against.empty()) continue;
      auto bench = std::find_if(out.begin(), out.end(), [&](const auto& some) { return some.first == one.key.bench; });
      if (bench == out.end()) bench = out.insert(out.end(), {one.key.bench, {}});
      const auto& in = seen[one.key];
      bench->second.push_back({&one, &run, *in.rbegin() != &run, in.size() > 1, index++});
    }
  }
  // The machine's limits stand behind the figures measured on it.
  const auto limit = std::find_if(out.begin(), out.end(), [](const auto& bench) { return bench.first == "limit"; });
  if (limit != out.end()) std::rotate(limit, limit + 1, out.end());
  return out;
}

}  // namespace

std::string page_data(const std::vector<NamedResults>& runs) {
  Json data = {{"runs", Json::array()}, {"comparisons", comparisons_of(runs)}, {"sections", Json::array()}};
  std::vector<Json> all;
  for (const NamedResults& run : runs) {
    const harness::Origin& origin = run.results.origin;
    char load[64];
    std::snprintf(load, sizeof load, "%g cores, load %.1f", origin.cores, origin.load);
    data["runs"].push_back(
        {{"name", run.name},
         {"where", origin.date + " · " + origin.machine + " · " + load + " · Heddle " + origin.version},
         {"command", origin.command},
         {"trust", trust(run.results)},
         {"answer", answer(run.results.records)},
         {"verdict", verdict(run.results.records)},
         {"cards", cards_of(run)}});
  }
  Json names = Json::array();
  std::set<std::string> told;
  for (const auto& [bench, figures] : benches_of(runs)) {
    Json rows = Json::array();
    for (const Figure& one : figures) {
      rows.push_back(one.index);
      all.resize(std::max(all.size(), one.index + 1));
      all[one.index] = json_of(one, runs.size() > 1);
      const std::string& op = one.record->key.op;
      if (told.insert(op).second && !meaning(op).empty()) names.push_back({op, meaning(op)});
    }
    data["sections"].push_back(
        {{"name", bench}, {"meaning", meaning(bench)}, {"charts", charts_of(figures)}, {"rows", rows}});
  }
  data["names"] = names;
  data["figures"] = all;
  // The answer of the latest run that has one: others may have measured something else.
  const auto answered = [](const NamedResults& run) { return answer(run.results.records).size() > 1; };
  const auto latest = std::find_if(runs.rbegin(), runs.rend(), answered);
  data["main"] = latest == runs.rend() ? 0 : runs.rend() - latest - 1;
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace heddle::bench::report
