# Every thread communicates: thread t of each rank has a worker of its own, puts a number to its right neighbour,
# waits for the one from the left, and adds that to a sum at rank 0.
from concurrent.futures import ThreadPoolExecutor

import heddle
import numpy as np

THREADS = 3
MAILBOX = 16  # bytes: a number, and a word that says that it has arrived
SUM = THREADS * MAILBOX  # behind the mailboxes; that of rank 0 is used


def communicate(context, region, peers, thread):
    worker = context.worker()
    place = thread * MAILBOX
    right = peers[(context.rank + 1) % context.size]
    number = np.uint64(10 * context.rank + thread)
    worker.put_signal(number, right, place, right, place + 8, 1)

    worker.wait_signal(region, place + 8, heddle.Compare.EQ, 1)
    got = np.frombuffer(region, np.uint64)[place // 8]
    worker.add(peers[0], SUM, int(got))
    worker.quiet()  # until the neighbour has our number, and rank 0 the sum


def main(context):
    region = context.alloc(SUM + 8)
    peers = context.exchange(region)

    with ThreadPoolExecutor(THREADS) as pool:
        threads = [pool.submit(communicate, context, region, peers, t) for t in range(THREADS)]
    for thread in threads:
        thread.result()  # throws what the thread has thrown

    words = np.frombuffer(region, np.uint64)
    print(f"rank {context.rank} got", *words[: 2 * THREADS : 2])
    context.barrier()  # all sums are made
    if context.rank == 0:
        print("the sum is", words[SUM // 8])


with heddle.Context() as context:
    main(context)
