// MPI_Pack, MPI_Unpack and their forms for external32.
#include <cstring>

#include <units/packing.hpp>
#include "mpi/communicators/comm.hpp"
#include "mpi/types/external.hpp"

namespace heddle::mpi {
namespace {

// The part that all functions share: the data, checked, and the bytes of its packed form.
struct PackedData {
  Type* type = nullptr;
  MPI_Count bytes = 0;
};

int check_data(MPI_Count count, MPI_Datatype datatype, bool external, PackedData* data) {
  if (const int code = committed_type(datatype, "datatype", &data->type)) return code;
  if (count < 0)
    return error(MPI_ERR_COUNT, "the count is %lld: it must not be negative", static_cast<long long>(count));
  MPI_Count native = 0;
  if (__builtin_mul_overflow(count, data->type->size, &native))
    return error(MPI_ERR_COUNT, "%lld elements of the datatype are more bytes than 64 bits count",
                 static_cast<long long>(count));
  data->bytes = external ? count * external_size(*data->type) : native;  // which is not longer
  return MPI_SUCCESS;
}

// The program's data may be at MPI_BOTTOM, which is a null pointer, by a datatype with addresses.
int check_buffer(const void* buffer, const char* name, const PackedData& data) {
  if (buffer == MPI_BOTTOM && data.bytes != 0 && data.type->predefined)
    return error(MPI_ERR_BUFFER, "%s is a null pointer", name);
  return MPI_SUCCESS;
}

// The packed form lies in a buffer of `size` bytes, from `position` on.
int check_packed(const void* packed, const char* name, MPI_Count size, const CountOut& position,
                 const PackedData& data) {
  if (!position.present()) return null_argument("position");
  if (size < 0)
    return error(MPI_ERR_ARG, "the size of %s is %lld: it must not be negative", name, static_cast<long long>(size));
  const MPI_Count at = position.get();
  if (at < 0 || at > size)
    return error(MPI_ERR_ARG, "position is %lld: it must be from 0 to the size of %s, which is %lld",
                 static_cast<long long>(at), name, static_cast<long long>(size));
  if (data.bytes > size - at)
    return error(MPI_ERR_ARG, "the data is %lld bytes: %s has %lld from the position on",
                 static_cast<long long>(data.bytes), name, static_cast<long long>(size - at));
  if (packed == nullptr && data.bytes != 0) return null_argument(name);
  return MPI_SUCCESS;
}

int check_representation(const char* datarep) {
  if (datarep == nullptr) return null_argument("datarep");
  if (std::strcmp(datarep, "external32") == 0) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "datarep is \"%s\": it must be \"external32\"", datarep);
}

int find_comm_of(MPI_Comm handle, Comm** comm) {
  *comm = comm_of(handle);
  return *comm == nullptr ? bad_comm(handle) : MPI_SUCCESS;
}

}  // namespace

int pack(Call call, const void* inbuf, MPI_Count incount, MPI_Datatype datatype, void* outbuf, MPI_Count outsize,
         CountOut position, MPI_Comm comm) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, false, &data);
  if (code == MPI_SUCCESS) code = check_buffer(inbuf, "inbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(outbuf, "outbuf", outsize, position, data);
  if (code != MPI_SUCCESS) return told(call, of, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) pack(inbuf, incount, *data.type, static_cast<std::byte*>(outbuf) + at);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int unpack(Call call, const void* inbuf, MPI_Count insize, CountOut position, void* outbuf, MPI_Count outcount,
           MPI_Datatype datatype, MPI_Comm comm) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(outcount, datatype, false, &data);
  if (code == MPI_SUCCESS) code = check_buffer(outbuf, "outbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(inbuf, "inbuf", insize, position, data);
  if (code != MPI_SUCCESS) return told(call, of, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) unpack(static_cast<const std::byte*>(inbuf) + at, data.bytes, outbuf, outcount, *data.type);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int pack_size(Call call, MPI_Count incount, MPI_Datatype datatype, MPI_Comm comm, CountOut size) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, false, &data);
  if (code == MPI_SUCCESS && !size.present()) code = null_argument("size");
  if (code != MPI_SUCCESS) return told(call, of, code);
  size.set(data.bytes);
  return MPI_SUCCESS;
}

int pack_external(Call call, const char* datarep, const void* inbuf, MPI_Count incount, MPI_Datatype datatype,
                  void* outbuf, MPI_Count outsize, CountOut position) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, true, &data);
  if (code == MPI_SUCCESS) code = check_buffer(inbuf, "inbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(outbuf, "outbuf", outsize, position, data);
  if (code != MPI_SUCCESS) return told(call, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) code = pack_external(inbuf, incount, *data.type, static_cast<std::byte*>(outbuf) + at);
  if (code == MPI_SUCCESS) position.set(at + data.bytes);
  return told(call, code);
}

int unpack_external(Call call, const char* datarep, const void* inbuf, MPI_Count insize, CountOut position,
                    void* outbuf, MPI_Count outcount, MPI_Datatype datatype) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(outcount, datatype, true, &data);
  if (code == MPI_SUCCESS) code = check_buffer(outbuf, "outbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(inbuf, "inbuf", insize, position, data);
  if (code != MPI_SUCCESS) return told(call, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) unpack_external(static_cast<const std::byte*>(inbuf) + at, outbuf, outcount, *data.type);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int pack_external_size(Call call, const char* datarep, MPI_Count incount, MPI_Datatype datatype, CountOut size) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, true, &data);
  if (code == MPI_SUCCESS && !size.present()) code = null_argument("size");
  if (code != MPI_SUCCESS) return told(call, code);
  size.set(data.bytes);
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
