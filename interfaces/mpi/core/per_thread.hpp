// An object of each thread, made on the heap when it is first asked for. The library's thread-local
// segment must stay small: one initial-exec variable makes all of it static, and dlopen() finds
// about 1.6 KiB for all libraries of a program that were not linked with it (Python's modules).
#pragma once

#include <new>

namespace heddle::mpi {

// One object of type T a thread; all members are static.
template <class T>
class PerThread {
 public:
  // Null: this thread has none yet.
  static T* find() { return t_object; }
  // Null: no memory, or the thread has ended and only runs destructors.
  static T* get() {
    if (t_object == nullptr && !t_gone) {
      t_object = new (std::nothrow) T;
      t_owner.begin();
    }
    return t_object;
  }

 private:
  struct Owner {
    ~Owner() {
      delete t_object;
      t_object = nullptr;
      t_gone = true;
    }
    void begin() {}  // so that it is there
  };

  static constinit inline thread_local T* t_object = nullptr;
  static constinit inline thread_local bool t_gone = false;
  static inline thread_local Owner t_owner;
};

}  // namespace heddle::mpi
