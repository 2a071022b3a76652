// The ring is a template, for the schedule explorer's sake; this is the instance that everybody
// else shares.
#include "queue/record_ring.hpp"

namespace heddle::queue {

template class RecordProducer<std::atomic>;
template class RecordConsumer<std::atomic>;

}  // namespace heddle::queue
