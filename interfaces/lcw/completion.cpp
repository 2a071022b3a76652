#include "lcw/completion.hpp"

namespace heddle::for_lcw {

bool CompletionQueue::pop_as_another(::lcw::request_t* request) {
  const bool owner = bias_.claim([this] {
    ::lcw::request_t left{};
    while (own_.pop(&left)) shared_.push(left);
  });
  return owner ? pop(request) : shared_.pop(request);
}

}  // namespace heddle::for_lcw
