// How a libfabric of the tests makes its objects. Each is a struct with libfabric's part as its
// first member, `fid`: so a pointer to that part is one to the object.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>

namespace heddle::transport::ofi::test {

template <class Object>
Object* object_of(void* fid) {
  return reinterpret_cast<Object*>(fid);
}

// A table of functions: those that `fill` sets, and no others. To be kept in a static: it is
// written once, and threads of other ranks call by it, without a lock.
template <class Table>
Table table(void (*fill)(Table&)) {
  Table all{};
  all.size = sizeof all;
  fill(all);
  return all;
}

// Ends an object that has no other end.
template <class Object>
int delete_object(fid* fid) {
  delete object_of<Object>(fid);
  return 0;
}

// `class_of`: FI_CLASS_…
template <class Object, class Fid>
Object* make_object(std::size_t class_of, fi_ops& ops, Fid** out) {
  auto* made = new Object;
  made->fid.fid = {class_of, nullptr, &ops};
  *out = &made->fid;
  return made;
}

}  // namespace heddle::transport::ofi::test
