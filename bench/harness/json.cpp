// The reader for flat JSON, and quoting. Input comes from child processes and from files: anything
// may be in it.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "harness/record.hpp"

namespace heddle::bench::harness {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<std::vector<JsonObject>> read(std::string* error) {
    std::vector<JsonObject> objects;
    const bool good = skip() == '[' ? array(&objects) : object(&objects.emplace_back());
    if (good && skip() != '\0') problem_ = "text after the end";
    if (problem_ == nullptr) return objects;
    if (error != nullptr) *error = std::string(problem_) + " at byte " + std::to_string(at_);
    return std::nullopt;
  }

  // A flat object, but for one member that is an array of flat objects.
  std::optional<std::vector<JsonObject>> read_table(std::string_view rows_name, JsonObject* header,
                                                    std::string* error) {
    rows_name_ = rows_name;
    skip();
    if (object(header) && skip() != '\0') fail("text after the end");
    if (problem_ == nullptr && !has_rows_) fail("no array of records");
    if (problem_ == nullptr) return std::move(rows_);
    if (error != nullptr) *error = std::string(problem_) + " at byte " + std::to_string(at_);
    return std::nullopt;
  }

 private:
  bool fail(const char* problem) {
    if (problem_ == nullptr) problem_ = problem;
    return false;
  }
  // Skips white space; the next character, or '\0' at the end.
  char skip() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (skip() != c) return false;
    ++at_;
    return true;
  }

  bool array(std::vector<JsonObject>* objects) {
    take('[');
    if (take(']')) return true;
    do {
      if (!object(&objects->emplace_back())) return false;
    } while (take(','));
    return take(']') || fail("expected , or ]");
  }

  bool object(JsonObject* out) {
    if (!take('{')) return fail("expected {");
    if (take('}')) return true;
    do {
      std::string name;
      if (skip() != '"' || !string(&name)) return fail("expected a member's name");
      if (!take(':')) return fail("expected :");
      if (!rows_name_.empty() && name == rows_name_) {
        rows_name_ = {};  // none of the rows has rows
        has_rows_ = true;
        if (skip() != '[') return fail("expected [");
        if (!array(&rows_)) return false;
      } else if (!value(&(*out)[name])) {
        return false;
      }
    } while (take(','));
    return take('}') || fail("expected , or }");
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  bool value(JsonValue* out) {
    const char next = skip();
    if (next == '"') {
      std::string text;
      if (!string(&text)) return false;
      *out = std::move(text);
      return true;
    }
    if (word("null")) return *out = nullptr, true;
    if (word("true")) return *out = true, true;
    if (word("false")) return *out = false, true;
    std::size_t end = at_;
    while (end < text_.size() && std::string_view("+-0123456789.eE").find(text_[end]) != std::string_view::npos) ++end;
    const std::string number(text_.substr(at_, end - at_));
    char* stop = nullptr;
    const double parsed = std::strtod(number.c_str(), &stop);
    if (number.empty() || *stop != '\0') return fail("expected a string, a number, true, false or null");
    at_ = end;
    *out = parsed;
    return true;
  }

  bool string(std::string* out) {
    ++at_;  // the opening quote
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return fail("control character in a string");
      if (c == '\\') {
        if (at_ == text_.size()) break;
        c = text_[at_++];
        if (c == 'u') {
          if (!unicode(&c)) return false;
        } else if (c == 'n') {
          c = '\n';
        } else if (c == 't') {
          c = '\t';
        } else if (c != '"' && c != '\\' && c != '/') {
          return fail("unknown escape");
        }
      }
      out->push_back(c);
    }
    if (at_ == text_.size()) return fail("unterminated string");
    ++at_;
    return true;
  }

  // Only what json_quote writes: control characters.
  bool unicode(char* out) {
    unsigned code = 0;
    const std::string digits(text_.substr(at_, 4));
    if (digits.size() != 4 || std::sscanf(digits.c_str(), "%4x", &code) != 1 || code >= 0x80) {
      return fail("unsupported \\u escape");
    }
    at_ += 4;
    *out = static_cast<char>(code);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* problem_ = nullptr;
  std::string_view rows_name_;
  std::vector<JsonObject> rows_;
  bool has_rows_ = false;
};

}  // namespace

std::optional<std::vector<JsonObject>> parse_json(std::string_view text, std::string* error) {
  return Reader(text).read(error);
}

std::optional<std::vector<JsonObject>> parse_json_table(std::string_view text, std::string_view rows_name,
                                                        JsonObject* header, std::string* error) {
  return Reader(text).read_table(rows_name, header, error);
}

std::string json_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", std::isfinite(value) ? value : 0.0);
  return text;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

}  // namespace heddle::bench::harness
