// Random reductions.
#include <algorithm>
#include <complex>

#include "collectives_cases.hpp"

namespace {

// Elements of one type under one operator.
struct Kind {
  const char* name = "";
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  std::size_t extent = 0;
  std::size_t at = 0;  // of the first byte of an element in its memory
  std::size_t bytes = 0;
  void (*make)(std::byte* element, std::uint32_t draw) = nullptr;
  void (*combine)(const std::byte* left, std::byte* right) = nullptr;  // right = left op right
  bool (*equal)(const std::byte* a, const std::byte* b) = nullptr;
};

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void write(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T, T (*kMake)(std::uint32_t), T (*kCombine)(T, T)>
Kind kind_of(const char* name, MPI_Datatype type, MPI_Op op) {
  return {name,
          type,
          op,
          sizeof(T),
          0,
          sizeof(T),
          [](std::byte* element, std::uint32_t draw) { write(element, kMake(draw)); },
          [](const std::byte* left, std::byte* right) { write(right, kCombine(read<T>(left), read<T>(right))); },
          [](const std::byte* a, const std::byte* b) { return read<T>(a) == read<T>(b); }};
}

template <class T>
T small(std::uint32_t draw) {
  return static_cast<T>(draw % 7);
}
template <class T>
T any(std::uint32_t draw) {
  return static_cast<T>(draw * 2654435761U);
}
std::complex<float> turn(std::uint32_t draw) {
  constexpr std::complex<float> kTurns[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
  return kTurns[draw % 4];
}
// Integers wrap, and do so without signs: small ones would become int.
template <class T>
T wrapped(std::uint64_t value) {
  return static_cast<T>(value);
}
template <class T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return wrapped<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return static_cast<T>(a + b);
}
template <class T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return wrapped<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return static_cast<T>(a * b);
}
template <class T>
T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T most(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T exclusive(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T both(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T unlike(T a, T b) {
  return (a != 0) != (b != 0) ? 1 : 0;
}

template <class V>
struct Located {
  V value;
  int index;
  bool operator==(const Located& other) const { return value == other.value && index == other.index; }
};
template <class V>
Located<V> locate(std::uint32_t draw) {
  return {static_cast<V>(draw % 3), static_cast<int>(draw / 3 % 50)};
}
template <class V>
Located<V> least_located(Located<V> a, Located<V> b) {
  if (a.value == b.value) return a.index < b.index ? a : b;
  return a.value < b.value ? a : b;
}
template <class V>
Located<V> most_located(Located<V> a, Located<V> b) {
  if (a.value == b.value) return a.index < b.index ? a : b;
  return a.value > b.value ? a : b;
}

// x -> factor x + term; one after the other, which does not commute.
struct Affine {
  std::uint32_t factor;
  std::uint32_t term;
  bool operator==(const Affine& other) const { return factor == other.factor && term == other.term; }
};
Affine affine(std::uint32_t draw) {
  return {draw % 5 * 2 + 1, draw % 1000};
}
Affine compose(Affine a, Affine b) {
  return {a.factor * b.factor, a.factor * b.term + a.term};
}

// The same two numbers apart: an element is five ints, of which the second and the last count; it
// begins an int before its address.
struct Apart {
  std::uint32_t factor;
  std::uint32_t gap[2];
  std::uint32_t term;
};
constexpr std::size_t kApartExtent = 5 * sizeof(int);

MPI_Datatype apart_type() {
  const int lengths[] = {1, 1};
  const int at[] = {-1, 2};
  MPI_Datatype made = MPI_DATATYPE_NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MUST(MPI_Type_indexed(2, lengths, at, MPI_UINT32_T, &made));
  MUST(MPI_Type_create_resized(made, -static_cast<int>(sizeof(int)), kApartExtent, &type));
  MUST(MPI_Type_commit(&type));
  g_types.push_back(type);
  MUST(MPI_Type_free(&made));
  return type;
}
MPI_Datatype affine_type() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MUST(MPI_Type_contiguous(2, MPI_UINT32_T, &type));
  MUST(MPI_Type_commit(&type));
  g_types.push_back(type);
  return type;
}

MPI_Datatype g_affine_type = MPI_DATATYPE_NULL;
MPI_Datatype g_apart_type = MPI_DATATYPE_NULL;

void compose_dense(void* in, void* inout, int* count, MPI_Datatype* type) {
  CHECK(*type == g_affine_type);
  auto* left = static_cast<Affine*>(in);
  auto* right = static_cast<Affine*>(inout);
  for (int i = 0; i < *count; ++i) right[i] = compose(left[i], right[i]);
}

std::byte* apart(void* elements, MPI_Count i) {
  return static_cast<std::byte*>(elements) + static_cast<std::ptrdiff_t>(kApartExtent) * i - sizeof(int);
}
template <class Combine>
void each_apart(void* in, void* inout, MPI_Count count, Combine combine) {
  for (MPI_Count i = 0; i < count; ++i) {
    const auto left = read<Apart>(apart(in, i));
    auto right = read<Apart>(apart(inout, i));
    combine(left, right);
    write(apart(inout, i), right);
  }
}
void compose_apart_values(const Apart& left, Apart& right) {
  const Affine made = compose({left.factor, left.term}, {right.factor, right.term});
  right.factor = made.factor;
  right.term = made.term;
}
void sum_apart_values(const Apart& left, Apart& right) {
  right.factor += left.factor;
  right.term += left.term;
}
void compose_apart(void* in, void* inout, MPI_Count* count, MPI_Datatype* type) {
  CHECK(*type == g_apart_type);
  each_apart(in, inout, *count, compose_apart_values);
}
void sum_apart(void* in, void* inout, int* count, MPI_Datatype* type) {
  CHECK(*type == g_apart_type);
  each_apart(in, inout, *count, sum_apart_values);
}

template <void (*kCombine)(const Apart&, Apart&)>
Kind apart_kind(const char* name, MPI_Op op) {
  return {name,
          g_apart_type,
          op,
          kApartExtent,
          sizeof(int),
          sizeof(Apart),
          [](std::byte* element, std::uint32_t draw) {
            auto value = read<Apart>(element);
            value.factor = affine(draw).factor;
            value.term = affine(draw).term;
            write(element, value);
          },
          [](const std::byte* left, std::byte* right) {
            auto value = read<Apart>(right);
            kCombine(read<Apart>(left), value);
            write(right, value);
          },
          [](const std::byte* a, const std::byte* b) {
            return read<Apart>(a).factor == read<Apart>(b).factor && read<Apart>(a).term == read<Apart>(b).term;
          }};
}

std::vector<Kind> make_kinds() {
  g_affine_type = affine_type();
  g_apart_type = apart_type();
  MPI_Op dense = MPI_OP_NULL;
  MPI_Op ordered = MPI_OP_NULL;
  MPI_Op any_order = MPI_OP_NULL;
  MUST(MPI_Op_create(compose_dense, 0, &dense));
  MUST(MPI_Op_create_c(compose_apart, 0, &ordered));
  MUST(MPI_Op_create(sum_apart, 1, &any_order));
  for (MPI_Op op : {dense, ordered, any_order}) g_ops.push_back(op);
  using I8 = std::int8_t;
  using U8 = unsigned char;
  using U16 = std::uint16_t;
  using U64 = std::uint64_t;
  return {
      kind_of<int, any<int>, exclusive<int>>("int bxor", MPI_INT, MPI_BXOR),
      kind_of<int, small<int>, sum<int>>("int sum", MPI_INT, MPI_SUM),
      kind_of<double, small<double>, sum<double>>("double sum", MPI_DOUBLE, MPI_SUM),
      kind_of<float, any<float>, most<float>>("float max", MPI_FLOAT, MPI_MAX),
      kind_of<I8, any<I8>, least<I8>>("int8 min", MPI_INT8_T, MPI_MIN),
      kind_of<char, small<char>, sum<char>>("char sum", MPI_CHAR, MPI_SUM),
      kind_of<U16, any<U16>, product<U16>>("uint16 prod", MPI_UINT16_T, MPI_PROD),
      kind_of<U64, any<U64>, both<U64>>("uint64 band", MPI_UINT64_T, MPI_BAND),
      kind_of<U8, any<U8>, exclusive<U8>>("byte bxor", MPI_BYTE, MPI_BXOR),
      kind_of<U8, small<U8>, unlike<U8>>("uint8 lxor", MPI_UINT8_T, MPI_LXOR),
      kind_of<bool, small<bool>, unlike<bool>>("bool lxor", MPI_C_BOOL, MPI_LXOR),
      kind_of<long double, small<long double>, sum<long double>>("long double sum", MPI_LONG_DOUBLE, MPI_SUM),
      kind_of<std::complex<float>, turn, product<std::complex<float>>>("complex prod", MPI_C_FLOAT_COMPLEX, MPI_PROD),
      kind_of<MPI_Aint, any<MPI_Aint>, most<MPI_Aint>>("aint max", MPI_AINT, MPI_MAX),
      kind_of<Located<int>, locate<int>, least_located<int>>("2int minloc", MPI_2INT, MPI_MINLOC),
      kind_of<Located<double>, locate<double>, most_located<double>>("double_int maxloc", MPI_DOUBLE_INT, MPI_MAXLOC),
      kind_of<Affine, affine, compose>("affine maps", g_affine_type, dense),
      apart_kind<compose_apart_values>("affine maps of a derived type", ordered),
      apart_kind<sum_apart_values>("sums of a derived type", any_order),
  };
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> made = make_kinds();
  return made;
}

// A vector in guarded memory.
class Vector {
 public:
  Vector(const Kind& kind, int count)
      : kind_(kind), count_(count), memory_(static_cast<std::size_t>(count) * kind.extent + 2 * kMargin) {}
  [[nodiscard]] void* base() { return memory_.data() + kMargin; }
  [[nodiscard]] std::byte* element(int i) {
    return memory_.data() + kMargin - kind_.at + static_cast<std::size_t>(i) * kind_.extent;
  }
  void clear() { std::fill(memory_.begin(), memory_.end(), kGuard); }
  // Nothing before the first element, and after the last.
  [[nodiscard]] bool margins_are_clean(int used) {
    const auto clean = [](std::byte byte) { return byte == kGuard; };
    std::byte* const last = memory_.data() + memory_.size();
    if (used == 0) return std::all_of(memory_.data(), last, clean);
    return std::all_of(memory_.data(), element(0), clean) && std::all_of(element(used - 1) + kind_.bytes, last, clean);
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  static constexpr std::size_t kMargin = 64;
  static constexpr std::byte kGuard{0xA5};
  const Kind& kind_;
  int count_;
  std::vector<std::byte> memory_;
};

struct Plan {
  const Kind& kind;
  Where where;
  int seed;
  int count;  // of a whole vector
  int root;
  bool in_place;
};

std::uint32_t draw_of(int seed, int side, int rank, int i) {
  return static_cast<std::uint32_t>(word(seed, side, rank, i));
}

void fill(const Plan& plan, int run, Vector& vector) {
  for (int i = 0; i < plan.count; ++i)
    plan.kind.make(vector.element(i), draw_of(plan.seed + run, plan.where.side, plan.where.rank, i));
}

// Element `i` of the vectors of ranks 0 to `ranks` - 1 of a group, combined.
void compare(const Plan& plan, int run, int side, int ranks, int i, const std::byte* found) {
  std::byte right[64] = {};
  std::byte left[64] = {};
  plan.kind.make(right, draw_of(plan.seed + run, side, ranks - 1, i));
  for (int rank = ranks - 2; rank >= 0; --rank) {
    plan.kind.make(left, draw_of(plan.seed + run, side, rank, i));
    plan.kind.combine(left, right);
  }
  if (!plan.kind.equal(found, right)) {
    std::fprintf(stderr, "%s of %d ranks: element %d of %d is wrong\n", plan.kind.name, ranks, i, plan.count);
    CHECK(false);
  }
}

// What a process passes, and expects: elements first to first + gets - 1 of the vectors of `ranks`
// ranks.
struct Part {
  bool gives = true;
  int first = 0;
  int gets = 0;
  int ranks = 0;
  int holds = 0;  // elements of the receive buffer
};

using Vectors = std::pair<std::shared_ptr<Vector>, std::shared_ptr<Vector>>;

Case reducing(const char* name, const Plan& plan, const Part& part,
              std::function<void(Form, MPI_Request*, const void*, void*)> call) {
  auto from = std::make_shared<Vector>(plan.kind, plan.count);
  auto to = std::make_shared<Vector>(plan.kind, std::max(part.holds, plan.in_place ? plan.count : 0));
  Case made{name, {}, {}, {}};
  made.fill = [=](int run) {
    from->clear();
    to->clear();
    if (part.gives) fill(plan, run, plan.in_place ? *to : *from);
  };
  made.call = [=](Form form, MPI_Request* request) {
    call(form, request, plan.in_place ? MPI_IN_PLACE : from->base(), to->base());
  };
  made.check = [=](int run) {
    const int side = plan.where.inter ? 1 - plan.where.side : plan.where.side;
    for (int i = 0; i < part.gets; ++i) compare(plan, run, side, part.ranks, part.first + i, to->element(i));
    CHECK(to->margins_are_clean(plan.in_place ? to->count() : part.gets));
    CHECK(from->margins_are_clean(plan.in_place || !part.gives ? 0 : plan.count));
  };
  return made;
}

Case whole(const Plan& plan, bool to_all) {
  const Where& where = plan.where;
  const int root = plan.root % (where.inter ? (where.side == 0 ? where.size : where.remote) : where.size);
  const bool at_root = (!where.inter || where.side == 0) && where.rank == root;
  Plan own = plan;
  Part part;
  part.gives = to_all || !where.inter || where.side == 1;
  part.gets = to_all || at_root ? plan.count : 0;
  part.holds = part.gets;
  part.ranks = where.remote;
  own.in_place = plan.in_place && (to_all || at_root);
  const int argument = !where.inter || where.side == 1 ? root : at_root ? MPI_ROOT : MPI_PROC_NULL;
  const Kind& kind = plan.kind;
  const int count = plan.count;
  return reducing(to_all ? "allreduce" : "reduce", own, part,
                  [=, &kind](Form form, MPI_Request* request, const void* from, void* to) {
                    if (to_all)
                      call_in<MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init>(form, request, from, to, count,
                                                                                 kind.type, kind.op, where.comm);
                    else
                      call_in<MPI_Reduce, MPI_Ireduce, MPI_Reduce_init>(form, request, from, to, count, kind.type,
                                                                        kind.op, argument, where.comm);
                  });
}

Case scan(const Plan& plan, bool inclusive) {
  const Where& where = plan.where;
  Part part;
  part.ranks = where.rank + (inclusive ? 1 : 0);
  part.gets = part.ranks > 0 ? plan.count : 0;
  part.holds = plan.count;
  const Kind& kind = plan.kind;
  const int count = plan.count;
  return reducing(inclusive ? "scan" : "exscan", plan, part,
                  [=, &kind](Form form, MPI_Request* request, const void* from, void* to) {
                    if (inclusive)
                      call_in<MPI_Scan, MPI_Iscan, MPI_Scan_init>(form, request, from, to, count, kind.type, kind.op,
                                                                  where.comm);
                    else
                      call_in<MPI_Exscan, MPI_Iexscan, MPI_Exscan_init>(form, request, from, to, count, kind.type,
                                                                        kind.op, where.comm);
                  });
}

Case scattered(Random& random, Plan plan) {
  const Where& where = plan.where;
  const bool even = random.one_in(2);
  const int units = plan.count;
  // Both groups of an intercommunicator share as many elements.
  auto counts = std::make_shared<std::vector<int>>(static_cast<std::size_t>(where.size), 0);
  plan.count = units * where.size * where.remote;
  const int each = plan.count / where.size;
  int left = plan.count;
  for (int i = 0; i < where.size; ++i) {
    int& count = (*counts)[static_cast<std::size_t>(i)];
    count = even ? each : word(plan.seed, 3, i, where.size) % 2 == 0 ? 0 : std::min(left, 1 + each / 2);
    left -= count;
  }
  counts->back() += left;
  Part part;
  part.ranks = where.remote;
  for (int i = 0; i < where.rank; ++i) part.first += (*counts)[static_cast<std::size_t>(i)];
  part.gets = (*counts)[static_cast<std::size_t>(where.rank)];
  part.holds = part.gets;
  const Kind& kind = plan.kind;
  const MPI_Comm comm = where.comm;
  return reducing(even ? "reduce_scatter_block" : "reduce_scatter", plan, part,
                  [=, &kind](Form form, MPI_Request* request, const void* from, void* to) {
                    if (even)
                      call_in<MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init>(
                          form, request, from, to, each, kind.type, kind.op, comm);
                    else
                      call_in<MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init>(
                          form, request, from, to, static_cast<const int*>(counts->data()), kind.type, kind.op, comm);
                  });
}

}  // namespace

Case random_reduction(Random& random, const Where& where, int seed) {
  const auto& all = kinds();
  const Kind& kind = all[static_cast<std::size_t>(random.below(static_cast<int>(all.size())))];
  const int sizes[] = {0, 1, 1, 2, 7, 100, 1500};
  Plan plan{kind, where, seed, sizes[random.below(7)], random.below(64), random.one_in(3) && !where.inter};
  const int which = random.below(where.inter ? 3 : 5);
  if (which == 2) {
    plan.count = std::min(plan.count, 100);
    return scattered(random, plan);
  }
  if (which >= 3 && random.one_in(4)) plan.count = 20000;
  return which < 2 ? whole(plan, which == 0) : scan(plan, which == 3);
}
