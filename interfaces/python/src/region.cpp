#include "region.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

namespace heddle::python {

Region::Region(std::shared_ptr<Context> context, std::shared_ptr<OpenRegion> open)
    : context_(std::move(context)), open_(std::move(open)) {
  check(heddle_region_address(open_->handle, &data_, &bytes_));
}

// If an array is gone, nobody can reach its memory, unless peers know it. With the GIL.
Region::~Region() {
  const bool forgotten = open_->pages.data() != nullptr && !open_->named.load(std::memory_order_relaxed) && open();
  if (!forgotten || !context_->open() || !context_->users().enter()) return;
  open_->exports.store(-1, std::memory_order_relaxed);
  static_cast<void>(heddle_region_release(open_->handle));
  context_->remove_region(open_.get());
  context_->users().leave();
}

Region* Region::of(nb::handle object) {
  Region* region = nullptr;
  if (nb::try_cast(object, region)) return region;
  nb::object base = nb::borrow(object);
  while (!base.is_none() && !nb::isinstance<Region>(base)) base = nb::getattr(base, "base", nb::none());
  if (base.is_none()) return nullptr;
  region = nb::inst_ptr<Region>(base);
  if (region->open_->pages.data() == nullptr) return nullptr;
  const Memory memory(object, Access::read);
  if (memory.data() == region->data_) return region;
  raise(
      HEDDLE_ERR_ARGUMENT,
      "this array begins inside the array that Context.zeros returned, and offsets count from the begin of that: pass "
      "that one");
}

bool Region::try_export() {
  if (open_->pages.data() != nullptr) return true;
  for (int now = open_->exports.load(std::memory_order_relaxed); now >= 0;) {
    if (open_->exports.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void Region::release() {
  if (!open()) return;
  const Use use(context_->users(), kContextLeft);
  context_->retire();  // operations that have completed may still have arrays
  int none = 0;
  if (!open_->exports.compare_exchange_strong(none, -1, std::memory_order_acquire)) {
    if (none < 0) return;
    raise(PyExc_BufferError, "arrays or memory views lie in the region: delete them first");
  }
  const heddle_status status = released([&] { return heddle_region_release(open_->handle); });
  const std::string text = status < 0 ? heddle_last_error() : "";
  context_->remove_region(open_.get());
  open_->memory.release();
  if (status < 0) raise(status, text);
}

void RemoteRegion::reject(nb::handle object) {
  if (nb::isinstance<Region>(object)) {
    raise(PyExc_TypeError,
          "this is a Region, which is one's own memory; operations name a RemoteRegion: one of those that "
          "Context.exchange(region) returns, or Context.unpack");
  }
  raise(PyExc_TypeError, std::string("a RemoteRegion is wanted, as Context.exchange(region) returns them, not ") +
                             Py_TYPE(object.ptr())->tp_name);
}

RemoteRegion::~RemoteRegion() {
  if (!context_->open() || !context_->users().enter()) return;
  static_cast<void>(heddle_remote_region_release(handle_));
  context_->users().leave();
}

namespace {

using Opened = std::shared_ptr<OpenRegion>;

std::shared_ptr<Region> alloc(Context& context, nb::handle length) {
  const Use use(context.users(), kContextLeft);
  const std::uint64_t bytes = number64(length, "the length");
  const Opened open = context.add_region();
  const heddle_status status = released([&] { return heddle_region_alloc(context.handle(), bytes, &open->handle); });
  if (status < 0) {
    context.remove_region(open.get());
    raise(status);
  }
  return std::make_shared<Region>(context.shared_from_this(), open);
}

std::shared_ptr<Region> register_memory(Context& context, nb::handle object, bool adopt) {
  const Use use(context.users(), kContextLeft);
  Memory memory(object, Access::write);
  heddle_region_options options{};
  options.size = sizeof options;
  options.adopt = adopt ? 1 : 0;
  const Opened open = context.add_region();
  // With the GIL: to adopt memory moves it, and no Python thread may use it meanwhile.
  const heddle_status status =
      heddle_region_register_with(context.handle(), memory.data(), memory.bytes(), &options, &open->handle);
  if (status < 0) {
    context.remove_region(open.get());
    raise(status);
  }
  open->memory = std::move(memory);
  return std::make_shared<Region>(context.shared_from_this(), open);
}

// Adopted, so that the array may outlive the region; and wholly, since nothing else lies in its
// pages. If the system does not let memory be adopted, it is registered.
void open_pages(Context& context, std::size_t bytes, OpenRegion& open) {
  ZeroedPages pages(bytes);
  heddle_region_options options{};
  options.size = sizeof options;
  options.adopt = 1;
  options.whole_pages = 1;
  const heddle_status status = released([&] {
    const heddle_status adopted =
        heddle_region_register_with(context.handle(), pages.data(), bytes, &options, &open.handle);
    if (adopted != HEDDLE_ERR_UNSUPPORTED) return adopted;
    return heddle_region_register(context.handle(), pages.data(), bytes, &open.handle);
  });
  if (status < 0) raise(status);
  open.pages = std::move(pages);
}

// shape and dtype are passed to NumPy.
nb::object zeros(Context& context, nb::handle shape, nb::handle type) {
  const Use use(context.users(), kContextLeft);
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object element = numpy.attr("dtype")(type);
  if (nb::cast<bool>(element.attr("hasobject"))) {
    raise(PyExc_TypeError, "arrays of Python objects mean nothing to another process");
  }
  const bool one = PyIndex_Check(shape.ptr()) != 0;
  const nb::tuple extents = one ? nb::make_tuple(shape) : nb::tuple(shape);
  std::size_t bytes = nb::cast<std::size_t>(element.attr("itemsize"));
  for (const nb::handle extent : extents) {
    if (__builtin_mul_overflow(bytes, number64(extent, "an extent of the shape"), &bytes)) {
      raise(PyExc_MemoryError, "an array larger than all addresses");
    }
  }
  bytes = std::max<std::size_t>(bytes, 1);  // a region has one byte at least
  const Opened open = context.add_region();
  try {
    open_pages(context, bytes, *open);
  } catch (...) {
    context.remove_region(open.get());
    throw;
  }
  const nb::object region = nb::cast(std::make_shared<Region>(context.shared_from_this(), open));
  return numpy.attr("ndarray")(extents, element, region);
}

// The region of an array of zeros(), or of any other memory.
nb::object register_any(Context& context, nb::handle object, bool adopt) {
  if (Region* const region = Region::of(object); region != nullptr && !nb::isinstance<Region>(object)) {
    const Use use(context.users(), kContextLeft);
    if (region->context().get() == &context && region->open()) return nb::find(region);
  }
  return nb::cast(register_memory(context, object, adopt));
}

std::vector<std::shared_ptr<RemoteRegion>> exchange(Context& context, nb::handle object) {
  const Use use(context.users(), kContextLeft);
  const Region* const of = Region::of(object);
  if (of == nullptr) {
    raise(PyExc_TypeError, std::string("a Region is wanted, or an array of Context.zeros; make one of this ") +
                               Py_TYPE(object.ptr())->tp_name + " by Context.register");
  }
  const Region& region = *of;
  region.name();
  std::vector<heddle_remote_region> handles(context.size());
  checked_released([&] { return heddle_region_exchange(context.handle(), region.handle(), handles.data()); });
  std::vector<std::shared_ptr<RemoteRegion>> all;
  for (const heddle_remote_region handle : handles) {
    all.push_back(std::make_shared<RemoteRegion>(context.shared_from_this(), handle));
  }
  return all;
}

nb::bytes pack(const Region& region) {
  const Use use(region.context()->users(), kContextLeft);
  region.name();
  char packed[HEDDLE_PACKED_REGION_BYTES];
  std::size_t bytes = sizeof packed;
  check(heddle_region_pack(region.handle(), packed, &bytes));
  return nb::bytes(packed, bytes);
}

std::shared_ptr<RemoteRegion> unpack(Context& context, const nb::bytes& packed) {
  const Use use(context.users(), kContextLeft);
  heddle_remote_region remote{};
  checked_released([&] { return heddle_region_unpack(context.handle(), packed.c_str(), packed.size(), &remote); });
  return std::make_shared<RemoteRegion>(context.shared_from_this(), remote);
}

bool is_mapped(const RemoteRegion& self, nb::handle offset, nb::handle length) {
  const Use use(self.context()->users(), kContextLeft);
  const std::uint64_t from = number64(offset, "the offset");
  const std::uint64_t bytes = number64(length, "the length");
  int mapped = 0;
  checked_released([&] { return heddle_remote_mapped(self.at(from), bytes, &mapped); });
  return mapped != 0;
}

std::uint32_t rank_of(const RemoteRegion& self) {
  const Use use(self.context()->users(), kContextLeft);
  std::uint32_t rank = 0;
  check(heddle_remote_region_rank(self.at(0).region, &rank));
  return rank;
}

std::uint64_t bytes_of(const RemoteRegion& self) {
  const Use use(self.context()->users(), kContextLeft);
  std::uint64_t bytes = 0;
  check(heddle_remote_region_bytes(self.at(0).region, &bytes));
  return bytes;
}

nb::str repr_remote(const RemoteRegion& self) {
  if (self.context()->users().closing()) return nb::str("<heddle.RemoteRegion, the context has left>");
  return nb::str("<heddle.RemoteRegion, {} bytes of rank {}>").format(bytes_of(self), rank_of(self));
}

nb::str repr_region(const Region& self) {
  if (!self.open()) return nb::str("<heddle.Region, released>");
  return nb::str("<heddle.Region, {} bytes>").format(self.bytes());
}

// The buffer protocol of a region: its bytes, which can be written.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* region = nb::inst_ptr<Region>(self);
  if (!region->try_export()) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the region is released, or its context has left");
    return -1;
  }
  const int filled =
      PyBuffer_FillInfo(view, self, region->data(), static_cast<Py_ssize_t>(region->exported_bytes()), 0, flags);
  if (filled != 0) region->end_export();
  return filled;
}
void release_buffer(PyObject* self, Py_buffer*) {
  nb::inst_ptr<Region>(self)->end_export();
}

PyType_Slot region_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

}  // namespace

void bind_regions(nb::module_& module, nb::class_<Context>& context) {
  nb::class_<Region>(
      module, "Region", nb::type_slots(region_slots),
      "Memory that peers can put to and get from.\n\n"
      "It has the buffer protocol: numpy.frombuffer(memoryview(region), dtype) is an array in it. It stays open until "
      "release(), or until the context leaves, also if nobody keeps this object.")
      .def("release", &Region::release,
           "Close it, after every peer's last operation on it. BufferError: arrays lie in it.")
      .def("pack", &pack, "Its name as bytes (128 at most), for Context.unpack of any rank of the job.")
      .def("__len__", &Region::bytes)
      .def("__repr__", &repr_region)
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Region"))
      .def(
          "__exit__", [](Region& self, const nb::args&) { self.release(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def_prop_ro("nbytes", &Region::bytes, "Its length in bytes; 0: it is released.");
  nb::class_<RemoteRegion>(module, "RemoteRegion", "A peer's region, or one's own, as operations name it.")
      .def("__repr__", &repr_remote)
      .def_prop_ro("rank", &rank_of, "The owner's rank.")
      .def_prop_ro("nbytes", &bytes_of, "Its length in bytes.")
      .def("is_mapped", &is_mapped, nb::arg("offset") = 0, nb::arg("nbytes") = 1,
           nb::sig("def is_mapped(self, offset: typing.SupportsIndex = 0, nbytes: typing.SupportsIndex = 1) -> bool"),
           "Whether operations on these bytes are direct loads and stores of this process.");
  context
      .def("alloc", &alloc, nb::arg("nbytes"), nb::sig("def alloc(self, nbytes: typing.SupportsIndex) -> Region"),
           "A new region of zeroed memory (1 byte or more); on the same node peers reach it by loads and stores.\n\n"
           "Its memory goes when it is released or the context leaves: arrays in it must be gone before.")
      .def("zeros", &zeros, nb::arg("shape"), nb::arg("dtype") = "float64",
           nb::sig("def zeros(self, shape: heddle.types.Shape, dtype: numpy.typing.DTypeLike = 'float64') -> "
                   "numpy.typing.NDArray[typing.Any]"),
           "A NumPy array of zeros that is a region: give it to exchange(), and peers on the node reach all of it by "
           "loads and stores.\n\n"
           "It lives as long as you like, also when the context has left. Once exchanged, its region stays open until "
           "register(array).release(), or until the context leaves; no thread may use the array during either.")
      .def("empty", &zeros, nb::arg("shape"), nb::arg("dtype") = "float64",
           nb::sig("def empty(self, shape: heddle.types.Shape, dtype: numpy.typing.DTypeLike = 'float64') -> "
                   "numpy.typing.NDArray[typing.Any]"),
           "As zeros(), for an array that is written first. (It costs the same: fresh memory is zero.)")
      .def("register", &register_any, nb::arg("memory"), nb::kw_only(), nb::arg("adopt") = false,
           nb::sig("def register(self, memory: heddle.types.Buffer, *, adopt: bool = False) -> Region"),
           "A region of an object's own memory, which can be written; the object is kept. Of an array of zeros() or "
           "empty() it is the region that the array is.\n\n"
           "adopt: its whole pages become memory that peers on the node map, as fast as alloc's. What is left of a "
           "page is as without adopt: its owner's worker 0 executes atomics and signals, and must make progress. "
           "NumPy's own arrays begin within a page, so offset 0 is such a place: zeros() gives arrays without. No "
           "thread may use the memory during this call, nor while the region is released or the context leaves. "
           "UnsupportedError: memory of another kind, such as a mapped file.")
      .def("exchange", &exchange, nb::arg("region"),
           nb::sig("def exchange(self, region: Region | heddle.types.Buffer) -> list[RemoteRegion]"),
           "Give a region, or an array of zeros() or empty(), and get those of all ranks, in their order. Collective "
           "over the job.")
      .def("unpack", &unpack, nb::arg("packed"), "The region that Region.pack of a peer has named.");
}

}  // namespace heddle::python
