// The page: header, the figures that matter most, charts, and the table of everything.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "driver/table.hpp"
#include "harness/statistics.hpp"
#include "report/plot.hpp"
#include "report/report.hpp"
#include "report/verdict.hpp"
#include "report/words.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;

const char* const kStyle = R"(
:root{--ink:#1c2430;--soft:#5d6a7a;--line:#e3e8ee;--paper:#fff;--ground:#f5f7fa;--good:#12803c;--bad:#c22f2f;--heddle:#d9480f}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#98a5b5;--line:#2b3542;--paper:#182029;--ground:#10161d;
--good:#4cc38a;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0}h2{font-size:18px;margin:38px 0 12px}
.sub{color:var(--soft);margin:4px 0 22px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:14px}
.card{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.card .what{color:var(--soft);font-size:13px}.card .big{font-size:25px;font-weight:650;margin:2px 0 6px}
.card .big small{font-size:14px;font-weight:500;color:var(--soft)}
.chip{display:inline-block;font-size:12.5px;border-radius:20px;padding:0 9px;margin:2px 4px 2px 0;border:1px solid var(--line)}
.good{color:var(--good)}.bad{color:var(--bad)}.plain{color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(440px,1fr));gap:16px}
@media (max-width:520px){.charts{grid-template-columns:1fr}}
figure{margin:0;background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:10px}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .title{font-size:15px;font-weight:650;fill:var(--ink)}
svg .value{font-size:11px;fill:var(--ink)}svg .grid{stroke:var(--line);stroke-width:1}svg .whisker{stroke:var(--ink);opacity:.55}
.scroll{overflow-x:auto;background:var(--paper);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
td:last-child{white-space:normal}th{color:var(--soft);font-weight:600;font-size:12.5px}
td.n,th.n{text-align:right}tr.ours td:nth-child(2){font-weight:650}tr:last-child td{border-bottom:0}
.warning{color:var(--bad);font-weight:600}
dt{font-weight:600;margin-top:6px}dd{margin:0 0 0 20px;color:var(--soft)}
footer{color:var(--soft);font-size:13px;margin-top:30px}
)";

std::string figure_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 100 ? "%.1f" : "%.2f", value);
  return text;
}

std::string who(const Record& record) {
  std::string name = harness::is_heddle(record.key) ? "Heddle" : record.key.transport;
  if (record.key.transport == "limit") name = record.key.op;
  if (record.key.op == "tagged") name += " tagged";
  if (record.key.sharing == "contexts" || record.key.transport == "shmem") {
    if (record.key.transport == "shmem") name += " OpenSHMEM";
    if (record.key.sharing == "contexts") name += ", a context each";
  } else if (harness::is_heddle(record.key)) {
    if (record.key.sharing != "exclusive") name += ", " + record.key.sharing;
    if (record.key.transport.starts_with("fault")) name += " on a fabric";
  } else if (record.key.sharing == "shared") {
    name += ", one shared worker";
  }
  if (record.key.memory == "registered" || record.key.memory == "malloc") name += ", " + record.key.memory;
  if (record.key.bench == "convolution") name += ", " + record.key.op;
  if (record.key.bench == "overlap" && record.key.op.find('_') != std::string::npos) {
    name += ", progress " + record.key.op.substr(record.key.op.find('_') + 1);
  }
  if (record.key.bench == "duplex") name += record.key.processes > 2 ? ", processes" : ", threads";
  return name;
}

std::string colour(const Record& record) {
  static const std::map<std::string, std::string> colours = {
      {"ucx", "#2f7fd1"}, {"openmpi", "#2f9e44"}, {"oshmem", "#9c36b5"}, {"limit", "#868e96"}};
  static const std::map<std::string, std::string> limits = {{"memcpy", "#868e96"},
                                                            {"memcpy_fresh", "#5c7cfa"},
                                                            {"cma", "#c2255c"},
                                                            {"copy_in_out_256K", "#e8a33d"},
                                                            {"copy_in_out_4M", "#12b886"}};
  if (record.key.bench == "limit" && limits.contains(record.key.op)) return limits.at(record.key.op);
  static const std::map<std::string, std::string> policies = {
      {"none", "#868e96"}, {"idle", "#1098ad"}, {"adaptive", "#d9480f"}};
  if (record.key.bench == "convolution" && policies.contains(record.key.op)) return policies.at(record.key.op);
  static const std::map<std::string, std::string> modes = {
      {"shared", "#f08c00"}, {"offload", "#1098ad"}, {"delegate", "#e64980"}, {"mutex", "#868e96"}};
  if (harness::is_heddle(record.key) && modes.contains(record.key.sharing)) return modes.at(record.key.sharing);
  if (record.key.transport == "shmem") return record.key.sharing == "contexts" ? "#0b7285" : "#66d9e8";
  if (harness::is_heddle(record.key)) return record.key.memory == "registered" ? "#f2a25c" : "#d9480f";
  const auto found = colours.find(record.key.transport);
  return found != colours.end() ? found->second : "#c2a000";
}

bool dashed(const Record& record) {
  return record.key.op.ends_with("_adaptive") || record.key.processes > 2 || record.key.memory == "registered" ||
         record.key.transport == "limit" || record.key.sharing == "shared" || record.key.op == "tagged";
}

Point point(const Record& record, double x) {
  return {x, record.median, record.low95, record.high95};
}

std::string chips(const std::vector<Record>& records, const Record& record) {
  std::string out;
  for (const Record& other : records) {
    if (other.key != record.key || other.against.empty()) continue;
    const bool peer = other.against != "P" && other.against != "limit" && other.against != "P added";
    const bool better = harness::larger_is_better(other.key.metric) ? other.ratio >= 1 : other.ratio <= 1;
    out += std::string("<span class=\"chip ") + (peer ? better ? "good" : "bad" : "plain") + "\">" +
           figure_text(other.ratio) + " × " + escape(other.against) + "</span>";
  }
  return out;
}

// A card for the figure, if it was measured.
std::string card(const std::vector<Record>& records, const char* what, const char* bench, const char* op,
                 std::uint32_t threads, std::uint64_t size) {
  for (const Record& record : records) {
    const harness::Key& key = record.key;
    if (!harness::is_heddle(key) || !record.against.empty() || key.bench != bench || key.op != op ||
        key.threads != threads || key.size_bytes != size || key.memory != "allocated") {
      continue;
    }
    return std::string("<div class=\"card\"><div class=\"what\">") + what + "</div><div class=\"big\">" +
           figure_text(record.median) + " <small>" + escape(key.unit) + "</small></div>" + chips(records, record) +
           "</div>\n";
  }
  return {};
}

// Heddle first, then the others as they came.
void heddle_first(std::vector<Series>* series) {
  std::vector<Series> ordered;
  for (const bool ours : {true, false}) {
    for (const Series& one : *series) {
      if (one.name.starts_with("Heddle") == ours) ordered.push_back(one);
    }
  }
  series->swap(ordered);
}

// Lines over size, one per participant, for the records that `take` accepts.
template <class Take>
std::string by_size(const std::vector<Record>& records, const char* title, const char* unit, Take take) {
  std::vector<Series> series;
  for (const Record& record : records) {
    if (!record.against.empty() || !take(record)) continue;
    const std::string name = who(record);
    auto found = std::find_if(series.begin(), series.end(), [&](const Series& one) { return one.name == name; });
    if (found == series.end()) {
      series.push_back({name, colour(record), dashed(record), {}});
      found = series.end() - 1;
    }
    found->points.push_back(point(record, static_cast<double>(record.key.size_bytes)));
  }
  heddle_first(&series);
  std::size_t longest = 0;
  for (Series& one : series) {
    std::sort(one.points.begin(), one.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    longest = std::max(longest, one.points.size());
  }
  return longest < 2 ? std::string() : line_chart(title, unit, series);  // one size is no curve
}

std::string latency_charts(const std::vector<Record>& records) {
  const struct {
    const char* op;
    const char* title;
  } charts[] = {{"put", "Put: one-way latency"},
                {"am", "Active message: one-way latency, handler run"},
                {"put_flush", "Put + flush, at the origin"},
                {"get", "Get, at the origin"}};
  std::string out;
  for (const auto& chart : charts) {
    out += by_size(records, chart.title, "ns, lower is better", [&](const Record& record) {
      const std::string op = record.key.op == "tagged" ? "am" : record.key.op;
      return record.key.bench == "pingpong" && op == chart.op;
    });
  }
  return out;
}

std::string bandwidth_charts(const std::vector<Record>& records) {
  std::string out;
  for (const std::string op : {"put", "get"}) {
    const std::string limit = op == "put" ? "memcpy" : "memcpy_get";
    const std::string title = (op == "put" ? "Put" : "Get") + std::string(": bandwidth");
    out += by_size(records, title.c_str(), "GB/s, higher is better", [&](const Record& record) {
      return record.key.bench == "bandwidth" && (record.key.op == op || record.key.op == limit);
    });
  }
  return out + by_size(records, "Limits of copying on this machine", "GB/s", [](const Record& record) {
           return record.key.bench == "limit" && record.key.metric == "bandwidth";
         });
}

// Bars by participant, of the records that `take` accepts, in groups: by number of threads, or by
// what `group_of` says.
using GroupName = std::pair<std::uint32_t, std::string>;  // ordered by the number
GroupName by_thread_count(const Record& record) {
  const std::uint32_t threads = record.key.threads;
  return {threads, std::to_string(threads) + (threads == 1 ? " thread" : " threads")};
}

template <class Take, class GroupOf = GroupName (*)(const Record&)>
std::string grouped(const std::vector<Record>& records, const char* title, const char* unit, Take take,
                    GroupOf group_of = by_thread_count) {
  std::map<std::uint32_t, Group> groups;
  for (const Record& record : records) {
    if (!record.against.empty() || !take(record)) continue;
    const GroupName name = group_of(record);
    Group& group = groups[name.first];
    group.name = name.second;
    group.bars.push_back({who(record), colour(record), dashed(record), {point(record, 0)}});
  }
  std::vector<Group> list;
  for (auto& [threads, group] : groups) {
    heddle_first(&group.bars);
    list.push_back(std::move(group));
  }
  return bar_chart(title, unit, list);
}

std::string by_threads(const std::vector<Record>& records, const char* title, const char* bench,
                       const std::string& wanted) {
  return grouped(records, title, "million per second, higher is better", [&](const Record& record) {
    const std::string op = record.key.op == "tagged" ? "am" : record.key.op;
    return record.key.bench == bench && op == wanted && record.key.size_bytes == 8;
  });
}

std::string overhead_charts(const std::vector<Record>& records) {
  const auto chart = [&](const char* title, const char* unit, const std::string& op, const std::string& metric) {
    return grouped(records, title, unit, [&](const Record& record) {
      const harness::Key& key = record.key;
      return key.bench == "overhead" && key.op == op && key.metric == metric && key.transport == "shm" &&
             (key.memory == "registered" || op.starts_with("am"));
    });
  };
  return chart("Posting a get (LLCL: t1 − t0)", "ns, lower is better", "get_post", "latency") +
         chart("Get, posted until done (LLCL: t2 − t0)", "ns, lower is better", "get", "latency") +
         chart("Gets of 8 bytes, registered memory", "million per second, higher is better", "get", "rate") +
         chart("Message and answer", "ns, lower is better", "am", "latency");
}

std::string rate_charts(const std::vector<Record>& records) {
  return by_threads(records, "Puts of 8 bytes, target asleep", "rate", "put") +
         by_threads(records, "Active messages of 8 bytes, in total", "rate", "am") +
         by_threads(records, "Gets of 8 bytes", "rate", "get") + by_threads(records, "Fetch-and-add", "rate", "fadd") +
         by_threads(records, "GUPS: get + xor + put", "gups", "get_put") +
         by_threads(records, "GUPS: atomic xor", "gups", "atomic");
}

std::string fairness_charts(const std::vector<Record>& records) {
  const auto of = [&](const char* title, const std::string& prefix) {
    return grouped(
        records, title, "callbacks; an even share is 131",
        [&](const Record& record) { return record.key.bench == "fairness" && record.key.op.starts_with(prefix); },
        [&](const Record& record) {
          const std::string rest = record.key.op.substr(prefix.size());
          return GroupName{static_cast<std::uint32_t>(std::strtoul(rest.c_str(), nullptr, 10)), rest};
        });
  };
  return of("Callbacks run by each of 8 threads, of 1050", "thread_") +
         of("Callbacks of thread 0, runs sorted by them (percent of runs)", "sorted_");
}

std::string duplex_charts(const std::vector<Record>& records) {
  std::string out;
  for (const std::string op : {"put", "get"}) {
    out += grouped(
        records, ("Both directions at once: " + op + " of 64 KiB").c_str(), "GB/s, higher is better",
        [&](const Record& record) {
          return record.key.bench == "duplex" && record.key.op == op && record.key.size_bytes == 65536;
        },
        [](const Record& record) {
          const std::uint32_t pairs = record.key.processes / 2 * record.key.threads;
          return GroupName{pairs, std::to_string(pairs) + (pairs == 1 ? " pair" : " pairs")};
        });
  }
  return out;
}

std::string convolution_charts(const std::vector<Record>& records) {
  return grouped(records, "Convolution: a step, by progress policy", "ns, lower is better",
                 [](const Record& record) { return record.key.bench == "convolution"; });
}

std::string overlap_charts(const std::vector<Record>& records) {
  std::string out;
  for (const std::string op : {"communication", "sender", "receiver", "both"}) {
    const std::string who_computes = op == "communication" ? "nobody computes"
                                     : op == "both"        ? "both compute"
                                                           : "the " + op + " computes";
    out += by_size(records, ("Overlap: " + who_computes).c_str(), "ns, lower is better", [&](const Record& record) {
      return record.key.bench == "overlap" && record.key.op.substr(0, record.key.op.find('_')) == op;
    });
  }
  return out;
}

std::string row(const std::vector<Record>& records, const Record& record) {
  const harness::Key& key = record.key;
  std::string notes = chips(records, record);
  if (record.distance != "near") notes += "<span class=\"chip plain\">cores " + escape(record.distance) + "</span>";
  if (!record.verified) notes += "<span class=\"chip bad\">wrong result</span>";
  // each is measured in several
  const bool ways = key.bench == "overhead" || key.bench == "atomics";
  return std::string("<tr") + (harness::is_heddle(key) ? " class=\"ours\"" : "") + "><td>" + escape(key.op) +
         (ways ? " " + escape(key.metric) : std::string()) + (key.memory == "registered" ? " (registered)" : "") +
         (key.processes > 2 ? ", " + std::to_string(key.processes) + " processes" : std::string()) + "</td><td>" +
         escape(key.transport + (harness::is_heddle(key) && key.sharing != "exclusive" ? ", " + key.sharing
                                 : key.sharing == "shared"                             ? ", shared worker"
                                                                                       : "")) +
         "</td><td class=\"n\">" + driver::size_text(key.size_bytes) + "</td><td class=\"n\">" +
         std::to_string(key.threads) + "</td><td class=\"n\"><b>" + figure_text(record.median) + "</b> " +
         escape(key.unit) + "</td><td class=\"n\">" + figure_text(record.low95) + " – " + figure_text(record.high95) +
         "</td><td class=\"n\">" + std::to_string(record.repeats) + "</td><td class=\"n\">" + figure_text(record.p_ns) +
         "</td><td>" + notes + "</td></tr>\n";
}

std::string tables(const std::vector<Record>& records) {
  std::string out;
  std::vector<std::string> benches;
  for (const Record& record : records) {
    if (std::find(benches.begin(), benches.end(), record.key.bench) == benches.end()) {
      benches.push_back(record.key.bench);
    }
  }
  for (const std::string& bench : benches) {
    out += "<h2>" + escape(bench) +
           "</h2><div class=\"scroll\"><table><thead><tr><th>operation</th><th>on</th><th class=\"n\">bytes</th>"
           "<th class=\"n\">threads</th><th class=\"n\">median</th><th class=\"n\">95 % interval</th>"
           "<th class=\"n\">repeats</th><th class=\"n\">P, ns</th><th>ratio to</th></tr></thead><tbody>\n";
    for (const Record& record : records) {
      if (record.key.bench == bench && record.against.empty()) out += row(records, record);
    }
    out += "</tbody></table></div>\n";
  }
  return out;
}

std::string p_text(const std::vector<Record>& records) {
  std::vector<double> near;
  std::size_t figures = 0;
  for (const Record& record : records) {
    if (!record.against.empty()) continue;
    ++figures;
    if (record.distance == "near") near.push_back(record.p_ns);
  }
  const std::string share = std::to_string(near.size()) + " of " + std::to_string(figures) + " figures";
  if (near.empty()) return "the cores were never near: read latencies as multiples of P";
  return "P = " + figure_text(harness::median_of(near)) + " ns (near in " + share + ")";
}

// When, where and by what each session was measured: not when this page was drawn.
std::string origins_text(const std::vector<harness::Origin>& origins) {
  std::string out;
  for (const harness::Origin& origin : origins) {
    char load[64];
    std::snprintf(load, sizeof load, "%g cores, load %.1f", origin.cores, origin.load);
    out += "<p class=\"sub\">Measured " + escape(origin.date) + " · " + escape(origin.machine) + " · " + load +
           " · Heddle " + escape(origin.version) + " · <code>" + escape(origin.command) + "</code></p>\n";
    if (was_loaded(origin)) {
      out +=
          "<p class=\"warning\">Other programs were at work when this session began: its figures are worse than "
          "those of a quiet machine.</p>\n";
    }
  }
  return out;
}

}  // namespace

std::string page(const std::vector<Record>& records, const std::vector<harness::Origin>& origins) {
  std::string cards = card(records, "Put, 8 bytes, one way", "pingpong", "put", 1, 8) +
                      card(records, "Active message, 8 bytes, one way", "pingpong", "am", 1, 8) +
                      card(records, "Puts from one thread", "rate", "put", 1, 8) +
                      card(records, "Puts from two threads", "rate", "put", 2, 8) +
                      card(records, "Active messages, one thread a process", "rate", "am", 1, 8) +
                      card(records, "Active messages, two threads a process", "rate", "am", 2, 8) +
                      card(records, "Put bandwidth, 1 MiB", "bandwidth", "put", 1, 1 << 20) +
                      card(records, "GUPS, atomic, one thread a process", "gups", "atomic", 1, 8);
  std::string charts = latency_charts(records) + rate_charts(records) + bandwidth_charts(records) +
                       overhead_charts(records) + fairness_charts(records) + duplex_charts(records) +
                       convolution_charts(records) + overlap_charts(records);
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Heddle: "
         "measured</title><style>" +
         std::string(kStyle) + "</style></head><body><main>\n<h1>Heddle, measured</h1>" + origins_text(origins) +
         "<p class=\"sub\">" + escape(p_text(records)) + "</p>\n" + verdict(records) + "<div class=\"cards\">" + cards +
         "</div>\n" + (charts.empty() ? "" : "<h2>Charts</h2>\n<div class=\"charts\">" + charts + "</div>\n") +
         tables(records) + words(records) +
         "<footer>Median and 95 % interval over the repeats. P is half the round trip of a word between two cache "
         "lines, "
         "measured before and after each repeat; figures taken while it was far or changed are marked. A ratio is "
         "Heddle's figure divided by the other's, measured in the same session: green where Heddle is the better "
         "one.</footer>\n</main></body></html>\n";
}

}  // namespace heddle::bench::report
