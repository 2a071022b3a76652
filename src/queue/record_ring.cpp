// The ring is a template for the schedule explorer; this is the instance that all other code
// shares.
#include "queue/record_ring.hpp"

namespace heddle::queue {

template class RecordProducer<std::atomic>;
template class RecordConsumer<std::atomic>;

}  // namespace heddle::queue
