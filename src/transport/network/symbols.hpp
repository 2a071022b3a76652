// The functions of a library that is opened at run time: one binary serves machines with and
// without it.
#pragma once

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"

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

// Opens it for as long as the process lives, since libraries of networks have threads and exit
// handlers. CONFIG: `install` says what there is to be installed, `setting` names the file.
base::Result<void*> load_library(const std::string& name, const char* install, const char* setting);

// A Library by its name: the first one of that name is made by `make`, and never freed. Any thread.
template <class Library, class Make>
base::Result<const Library*> open_once(const std::string& name, Make make) {
  struct Opened {
    std::mutex mutex;
    std::map<std::string, const Library*> by_name;
  };
  static auto& opened = *new Opened;
  const std::lock_guard lock(opened.mutex);
  if (const auto found = opened.by_name.find(name); found != opened.by_name.end()) return found->second;
  base::Result<std::unique_ptr<Library>> made = make();
  if (!made) return made.status();
  return opened.by_name[name] = made->release();
}

// A function that throws nothing: its callers on the hot path keep no frame for that.
template <class Function>
struct Quiet;
template <class Result, class... Arguments>
struct Quiet<Result (*)(Arguments...)> {
  using Type = Result (*)(Arguments...) noexcept;
};

inline Symbol Symbols::find(const char* name, const char* version) {
  void* symbol = nullptr;
  if (library_ != nullptr) symbol = version != nullptr ? dlvsym(library_, name, version) : dlsym(library_, name);
  if (symbol == nullptr) complete_ = false;
  return {symbol};
}

inline base::Result<void*> load_library(const std::string& name, const char* install, const char* setting) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle != nullptr) return handle;
  return base::fail(HEDDLE_ERR_CONFIG, "%s cannot be loaded: %s; install %s, or set %s to the file", name.c_str(),
                    dlerror(), install, setting);
}

}  // namespace heddle::transport::network
