// The texts that programs add to reports about jobs that hang, and to traces.
#include "api/arguments.hpp"
#include "worker/worker.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

heddle_status heddle_wait_note(heddle_worker handle, heddle_tell_wait tell, void* arg) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (tell == nullptr) return null_argument("wait_note", "tell");
  heddle::engine::Context& context = worker->context();
  const heddle::engine::Inspection::Waiting waiting{nullptr, worker->index(), tell, arg};
  heddle::engine::Inspection& inspection = context.inspection();
  if (inspection.note(waiting, context.clock().now_ns())) {
    inspection.answer(heddle::engine::Inspection::From::program, {});
  }
  return HEDDLE_DONE;
}

heddle_status heddle_wait_end(heddle_worker handle, const void* arg) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  worker->context().inspection().end_noted(arg);
  return HEDDLE_DONE;
}

heddle_status heddle_context_list_held(heddle_context handle, heddle_list_held function) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  context->inspection().list_held(function);
  return HEDDLE_DONE;
}

heddle_status heddle_context_name_tags(heddle_context handle, heddle_name_tag function) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  context->name_tags(function);
  return HEDDLE_DONE;
}

int heddle_trace_begin(heddle_context handle, const char* name, const char* text) {
  const Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (name == nullptr) return null_argument("trace_begin", "name");
  heddle::tap::Tracer* const tracer = context->tracer();
  if (tracer == nullptr) return 0;
  tracer->begin_call(name, text != nullptr ? text : "");
  return 1;
}

heddle_status heddle_trace_end(heddle_context handle, const char* name) {
  const Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (name == nullptr) return null_argument("trace_end", "name");
  if (context->tracer() != nullptr) context->tracer()->end_call(name);
  return HEDDLE_DONE;
}
