#include "mpi/types/envelope.hpp"

#include <algorithm>
#include <string_view>

#include <units/datatypes.hpp>
#include "mpi/types/construct.hpp"

namespace heddle::mpi {

Envelope::Envelope(int of, Call call) : combiner(of), large(std::string_view(call).ends_with("_c")) {}

Envelope::~Envelope() {
  for (Type* const one : types) release(one);
}

Envelope& Envelope::integer(int value) {
  integers.push_back(value);
  return *this;
}

Envelope& Envelope::integers_of(const int* values, MPI_Count number) {
  integers.insert(integers.end(), values, values + number);
  return *this;
}

Envelope& Envelope::count(MPI_Count value) {
  if (large)
    counts.push_back(value);
  else
    integers.push_back(static_cast<int>(value));
  return *this;
}

Envelope& Envelope::counts_of(Counts values, MPI_Count number) {
  if (values.narrow() != nullptr) return integers_of(values.narrow(), number);
  if (values.wide() != nullptr) counts.insert(counts.end(), values.wide(), values.wide() + number);
  return *this;
}

Envelope& Envelope::address(MPI_Count value) {
  (large ? counts : addresses).push_back(value);
  return *this;
}

Envelope& Envelope::addresses_of(Counts values, MPI_Count number) {
  std::vector<MPI_Count>& all = large ? counts : addresses;
  if (values.wide() != nullptr) all.insert(all.end(), values.wide(), values.wide() + number);
  return *this;
}

Envelope& Envelope::type(Type* of) {
  types.push_back(of);
  retain(of);
  return *this;
}

namespace {

const Envelope& named() {
  static const Envelope envelope(MPI_COMBINER_NAMED, "");
  return envelope;
}

// Null: the handle names no datatype.
const Envelope* envelope_of(MPI_Datatype handle) {
  const Type* const type = type_of(handle);
  if (type == nullptr) return nullptr;
  return type->envelope != nullptr ? type->envelope.get() : &named();
}

int check_small(const Envelope& envelope, Call call) {
  if (!envelope.large || envelope.counts.empty()) return MPI_SUCCESS;
  return error(MPI_ERR_TYPE, "the datatype was made with large counts: call %s_c", call);
}

template <class Number>
Number length(const auto& list) {
  return static_cast<Number>(list.size());
}

// Checks that the program's array has room for all elements of its kind.
template <class Element>
int check_room(const char* what, MPI_Count room, std::size_t needed, const Element* list) {
  if (room < 0 || static_cast<std::size_t>(room) < needed)
    return error(MPI_ERR_ARG, "room for %lld %s, of which the datatype has %zu (MPI_Type_get_envelope tells)",
                 static_cast<long long>(room), what, needed);
  if (needed != 0 && list == nullptr)
    return error(MPI_ERR_ARG, "the array for the %zu %s is a null pointer", needed, what);
  return MPI_SUCCESS;
}

// New handles of derived datatypes: the program frees them.
int give_types(const Envelope& envelope, MPI_Datatype* handles) {
  for (std::size_t i = 0; i < envelope.types.size(); ++i) {
    Type* const type = envelope.types[i];
    handles[i] = handle_of(type);
    if (type->predefined) continue;
    Type* const twin = new_type(*type, type->envelope, type->committed);
    if (twin == nullptr) {
      while (i-- > 0)
        if (!envelope.types[i]->predefined) release(type_of(handles[i]));
      return no_memory_for("the datatype");
    }
    handles[i] = handle_of(twin);
  }
  return MPI_SUCCESS;
}

int get_envelope(Call call, MPI_Datatype datatype, int* integers, int* addresses, int* types, int* combiner) {
  const Envelope* const envelope = envelope_of(datatype);
  if (envelope == nullptr) return bad_type(datatype);
  if (integers == nullptr || addresses == nullptr || types == nullptr || combiner == nullptr)
    return null_argument("num_…");
  if (const int code = check_small(*envelope, call)) return code;
  *integers = length<int>(envelope->integers);
  *addresses = length<int>(envelope->addresses);
  *types = length<int>(envelope->types);
  *combiner = envelope->combiner;
  return MPI_SUCCESS;
}

int get_envelope_large(MPI_Datatype datatype, MPI_Count* integers, MPI_Count* addresses, MPI_Count* counts,
                       MPI_Count* types, int* combiner) {
  const Envelope* const envelope = envelope_of(datatype);
  if (envelope == nullptr) return bad_type(datatype);
  if (integers == nullptr || addresses == nullptr || counts == nullptr || types == nullptr || combiner == nullptr)
    return null_argument("num_…");
  *integers = length<MPI_Count>(envelope->integers);
  *addresses = length<MPI_Count>(envelope->addresses);
  *counts = length<MPI_Count>(envelope->counts);
  *types = length<MPI_Count>(envelope->types);
  *combiner = envelope->combiner;
  return MPI_SUCCESS;
}

struct Room {
  MPI_Count integers;
  MPI_Count addresses;
  MPI_Count counts;
  MPI_Count types;
};

int get_contents(const Envelope& envelope, const Room& room, int integers[], MPI_Aint addresses[], MPI_Count counts[],
                 MPI_Datatype types[]) {
  if (envelope.combiner == MPI_COMBINER_NAMED)
    return error(MPI_ERR_TYPE,
                 "a named predefined datatype has no contents: MPI_Type_get_envelope tells which ones are");
  if (const int code = check_room("integers", room.integers, envelope.integers.size(), integers)) return code;
  if (const int code = check_room("addresses", room.addresses, envelope.addresses.size(), addresses)) return code;
  if (const int code = check_room("large counts", room.counts, envelope.counts.size(), counts)) return code;
  if (const int code = check_room("datatypes", room.types, envelope.types.size(), types)) return code;
  std::ranges::copy(envelope.integers, integers);
  std::ranges::copy(envelope.addresses, addresses);
  std::ranges::copy(envelope.counts, counts);
  return give_types(envelope, types);
}

}  // namespace

int type_get_envelope(Call call, MPI_Datatype datatype, int* num_integers, int* num_addresses, int* num_datatypes,
                      int* combiner) {
  return told(call, get_envelope(call, datatype, num_integers, num_addresses, num_datatypes, combiner));
}

int type_get_envelope_c(Call call, MPI_Datatype datatype, MPI_Count* num_integers, MPI_Count* num_addresses,
                        MPI_Count* num_large_counts, MPI_Count* num_datatypes, int* combiner) {
  return told(call,
              get_envelope_large(datatype, num_integers, num_addresses, num_large_counts, num_datatypes, combiner));
}

int type_get_contents(Call call, MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes,
                      int array_of_integers[], MPI_Aint array_of_addresses[], MPI_Datatype array_of_datatypes[]) {
  return told(call, guarded("the datatype", [&] {
                const Envelope* const envelope = envelope_of(datatype);
                if (envelope == nullptr) return bad_type(datatype);
                if (const int code = check_small(*envelope, call)) return code;
                return get_contents(*envelope, {max_integers, max_addresses, 0, max_datatypes}, array_of_integers,
                                    array_of_addresses, nullptr, array_of_datatypes);
              }));
}

int type_get_contents_c(Call call, MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                        MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                        MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                        MPI_Datatype array_of_datatypes[]) {
  return told(call, guarded("the datatype", [&] {
                const Envelope* const envelope = envelope_of(datatype);
                if (envelope == nullptr) return bad_type(datatype);
                return get_contents(*envelope, {max_integers, max_addresses, max_large_counts, max_datatypes},
                                    array_of_integers, array_of_addresses, array_of_large_counts, array_of_datatypes);
              }));
}

}  // namespace heddle::mpi
