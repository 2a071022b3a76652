#include "heddle/heddle.h"

const char* heddle_status_name(heddle_status status) {
  switch (status) {
    case HEDDLE_DONE:
      return "HEDDLE_DONE";
    case HEDDLE_POSTED:
      return "HEDDLE_POSTED";
    case HEDDLE_AGAIN:
      return "HEDDLE_AGAIN";
    case HEDDLE_ERR_ARGUMENT:
      return "HEDDLE_ERR_ARGUMENT";
    case HEDDLE_ERR_HANDLE:
      return "HEDDLE_ERR_HANDLE";
    case HEDDLE_ERR_RANK:
      return "HEDDLE_ERR_RANK";
    case HEDDLE_ERR_RANGE:
      return "HEDDLE_ERR_RANGE";
    case HEDDLE_ERR_ALIGNMENT:
      return "HEDDLE_ERR_ALIGNMENT";
    case HEDDLE_ERR_SIZE:
      return "HEDDLE_ERR_SIZE";
    case HEDDLE_ERR_NO_MEMORY:
      return "HEDDLE_ERR_NO_MEMORY";
    case HEDDLE_ERR_UNSUPPORTED:
      return "HEDDLE_ERR_UNSUPPORTED";
    case HEDDLE_ERR_PEER_FAILED:
      return "HEDDLE_ERR_PEER_FAILED";
    case HEDDLE_ERR_TIMEOUT:
      return "HEDDLE_ERR_TIMEOUT";
    case HEDDLE_ERR_CONFIG:
      return "HEDDLE_ERR_CONFIG";
    case HEDDLE_ERR_VERSION:
      return "HEDDLE_ERR_VERSION";
    case HEDDLE_ERR_BOOTSTRAP:
      return "HEDDLE_ERR_BOOTSTRAP";
    case HEDDLE_ERR_STATE:
      return "HEDDLE_ERR_STATE";
    case HEDDLE_ERR_SYSTEM:
      return "HEDDLE_ERR_SYSTEM";
    case HEDDLE_ERR_PROTOCOL:
      return "HEDDLE_ERR_PROTOCOL";
    case HEDDLE_ERR_CANCELLED:
      return "HEDDLE_ERR_CANCELLED";
    case HEDDLE_ERR_TRUNCATED:
      return "HEDDLE_ERR_TRUNCATED";
  }
  return "HEDDLE_STATUS_UNKNOWN";
}
