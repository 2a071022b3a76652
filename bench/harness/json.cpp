// The JSON form of samples, records and results. Input comes from child processes and from files:
// anything may be in it. In the harness, only this file includes the JSON library, which takes
// seconds to compile.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/record.hpp"

namespace heddle::bench::harness {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFormat = 2;     // lines; 1 was one object around all records
constexpr std::size_t kMostWords = 200;  // of the library's message, which may quote a whole file

// As many digits as a measurement has: 2 rather than 2.0, 71.1 rather than 71.0999999.
Json rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", std::isfinite(value) ? value : 0.0);
  return Json::parse(text);
}

// Names and commands may hold any bytes, and JSON is UTF-8.
std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json object_of(const RecordKey& key) {
  return {{"bench", key.bench},     {"op", key.op},           {"transport", key.transport},
          {"sharing", key.sharing}, {"memory", key.memory},   {"processes", key.processes},
          {"threads", key.threads}, {"workers", key.workers}, {"size_bytes", key.size_bytes},
          {"metric", key.metric},   {"unit", key.unit}};
}

Json object_of(const BenchRecord& record) {
  Json out = object_of(record.key);
  out["median"] = rounded(record.median);
  out["low95"] = rounded(record.low95);
  out["high95"] = rounded(record.high95);
  out["best"] = rounded(record.best);
  out["slow99"] = rounded(record.slow99);
  out["repeats"] = record.repeats;
  out["p_ns"] = rounded(record.p_ns);
  out["distance"] = record.distance;
  out["verified"] = record.verified;
  out["against"] = record.against.empty() ? Json() : Json(record.against);
  out["ratio"] = record.against.empty() ? Json() : Json(rounded(record.ratio));
  return out;
}

std::string line_text(std::size_t line) {
  return "line " + std::to_string(line) + ": ";
}

// Parses one value, which begins in `line` of its file. A value that is not well formed is
// `discarded`, and *error says where and why.
Json parsed(std::string_view text, std::size_t line, std::string* error) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& problem) {
    const std::string_view before = text.substr(0, problem.byte);
    line += static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::string what = problem.what();
    const std::size_t words = what.find(": ");  // behind the library's own name of the place
    *error = line_text(line) + what.substr(words == std::string::npos ? 0 : words + 2, kMostWords);
  } catch (const Json::exception& problem) {
    const std::string what = problem.what();
    // behind "[json.exception.…] "
    *error = line_text(line) + what.substr(what.find("] ") + 2, kMostWords);
  }
  return Json(Json::value_t::discarded);
}

// Fetches an object's members and remembers the first that is not as it must be.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {
    if (!object.is_object()) problem_ = "an object is expected";
  }

  std::string text(const char* name) { return get<std::string>(name, "a text", &Json::is_string); }
  bool flag(const char* name) { return get<bool>(name, "true or false", &Json::is_boolean); }
  double number(const char* name) { return get<double>(name, "a number", &Json::is_number); }
  template <class T>
  T count(const char* name) {
    constexpr const char* kExpected = "a whole number that is not too large";
    const auto value = get<std::uint64_t>(name, kExpected, &Json::is_number_unsigned);
    if (value > std::numeric_limits<T>::max()) complain(name, std::string("is not ") + kExpected);
    return static_cast<T>(value);
  }
  bool has(const char* name) { return object_.is_object() && object_.contains(name) && !object_[name].is_null(); }

  RecordKey key() {
    return {.bench = text("bench"),
            .op = text("op"),
            .transport = text("transport"),
            .sharing = text("sharing"),
            .memory = text("memory"),
            .metric = text("metric"),
            .unit = text("unit"),
            .processes = count<std::uint32_t>("processes"),
            .threads = count<std::uint32_t>("threads"),
            .workers = count<std::uint32_t>("workers"),
            .size_bytes = count<std::uint64_t>("size_bytes")};
  }
  BenchRecord record() {
    BenchRecord out;
    out.key = key();
    out.median = number("median");
    out.low95 = number("low95");
    out.high95 = number("high95");
    if (has("best")) {  // not in results of earlier releases
      out.best = number("best");
      out.slow99 = number("slow99");
    }
    out.repeats = count<std::uint64_t>("repeats");
    out.p_ns = number("p_ns");
    out.distance = text("distance");
    out.verified = flag("verified");
    if (has("against")) {
      out.against = text("against");
      out.ratio = number("ratio");
    }
    return out;
  }
  Origin origin() {
    return {text("date"), text("machine"), text("version"), text("command"), number("cores"), number("load")};
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  template <class T>
  T get(const char* name, const char* expected, bool (Json::*is)() const noexcept) {
    if (!problem_.empty()) return T{};
    const auto found = object_.find(name);
    if (found != object_.end() && ((*found).*is)()) return found->get<T>();
    complain(name, found == object_.end() ? "is missing" : std::string("is not ") + expected);
    return T{};
  }
  void complain(const char* name, const std::string& what) {
    if (problem_.empty()) problem_ = "the member \"" + std::string(name) + "\" " + what;
  }

  const Json& object_;
  std::string problem_;
};

bool good(const Members& members, const std::string& place, std::string* error) {
  if (!members.problem().empty()) *error = place + members.problem();
  return members.problem().empty();
}

// Format 1: an object with all records in an array.
std::optional<Results> from_document(const Json& document, std::string* error) {
  Members header(document);
  const auto format = header.count<std::uint64_t>("heddle_bench");
  Results results{header.origin(), {}};
  if (!good(header, {}, error)) return std::nullopt;
  const auto rows = document.find("records");
  if (format != 1 || rows == document.end() || !rows->is_array()) {
    *error = "it is of format " + std::to_string(format) + " without its records; this heddle reads formats 1 and 2";
    return std::nullopt;
  }
  for (std::size_t i = 0; i < rows->size(); ++i) {
    Members row((*rows)[i]);
    results.records.push_back(row.record());
    if (!good(row, "record " + std::to_string(i + 1) + ": ", error)) return std::nullopt;
  }
  return results;
}

}  // namespace

std::string to_json(const Sample& sample) {
  Json out = object_of(sample.key);
  out["value"] = rounded(sample.value);
  out["p_ns"] = rounded(sample.p_ns);
  out["distance"] = distance_name(sample.distance);
  out["verified"] = sample.verified;
  return line_of(out);
}

std::string to_json(const Results& results) {
  const Origin& origin = results.origin;
  std::string out = line_of({{"heddle_bench", kFormat},
                             {"date", origin.date},
                             {"machine", origin.machine},
                             {"cores", rounded(origin.cores)},
                             {"load", rounded(origin.load)},
                             {"version", origin.version},
                             {"command", origin.command}}) +
                    "\n";
  for (const BenchRecord& record : results.records) out += line_of(object_of(record)) + "\n";
  return out;
}

std::optional<Sample> sample_from(std::string_view line, std::string* error) {
  const Json object = parsed(line, 1, error);
  if (object.is_discarded()) return std::nullopt;
  Members members(object);
  Sample sample;
  sample.key = members.key();
  sample.value = members.number("value");
  sample.p_ns = members.number("p_ns");
  sample.verified = members.flag("verified");
  const std::string distance = members.text("distance");
  sample.distance = distance == "near" ? Distance::near : distance == "far" ? Distance::far : Distance::changed;
  if (!good(members, {}, error)) return std::nullopt;
  return sample;
}

std::optional<Results> results_from(std::string_view text, std::string* error) {
  std::size_t end = std::min(text.find('\n'), text.size());
  Json header = parsed(text.substr(0, end), 1, error);
  if (header.is_discarded() || header.contains("records")) {
    const Json document = parsed(text, 1, error);
    return document.is_discarded() ? std::nullopt : from_document(document, error);
  }
  Members members(header);
  const auto format = members.count<std::uint64_t>("heddle_bench");
  if (members.problem().empty() && format != kFormat) {
    *error = "it is of format " + std::to_string(format) + "; this heddle reads formats 1 and 2";
    return std::nullopt;
  }
  Results results{members.origin(), {}};
  if (!good(members, line_text(1), error)) return std::nullopt;
  for (std::size_t number = 2; end < text.size(); ++number) {
    const std::size_t begin = end + 1;
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json object = parsed(line, number, error);
    if (object.is_discarded()) return std::nullopt;
    Members row(object);
    if (row.has("heddle_bench")) {
      *error = line_text(number) + "another run begins here; give each run a file of its own";
      return std::nullopt;
    }
    results.records.push_back(row.record());
    if (!good(row, line_text(number), error)) return std::nullopt;
  }
  return results;
}

}  // namespace heddle::bench::harness
