// The functions of a library that is opened at run time: one binary serves machines with and
// without it.
#pragma once

namespace heddle::transport::network {

// A library's symbol, as a pointer to the function that it is there.
struct Symbol {
  void* at;
  template <class Function>
  operator Function*() const {  // NOLINT(google-explicit-constructor): for the list below
    return reinterpret_cast<Function*>(at);
  }
};
class Symbols {
 public:
  // Null: every symbol is missing.
  explicit Symbols(void* library) : library_(library) {}
  [[nodiscard]] bool complete() const { return complete_; }

 protected:
  // `version`: of the symbol, where the library has several; null: its newest.
  Symbol find(const char* name, const char* version = nullptr);

 private:
  void* library_;
  bool complete_ = true;
};

// A function that throws nothing: its callers on the hot path keep no frame for that.
template <class Function>
struct Quiet;
template <class Result, class... Arguments>
struct Quiet<Result (*)(Arguments...)> {
  using Type = Result (*)(Arguments...) noexcept;
};

}  // namespace heddle::transport::network
