# Each rank puts a number into its right neighbour's memory, and waits for the one from the left.
import heddle
import numpy as np

NUMBER, ARRIVED = 0, 8  # where they lie in a mailbox, in bytes


def exchange(context):
    worker = context.worker()
    region = context.alloc(16)  # zeroed
    mailbox = np.frombuffer(region, np.uint64)
    mailboxes = context.exchange(region)  # those of all ranks

    right = mailboxes[(context.rank + 1) % context.size]
    number = np.uint64(10 * context.rank)
    worker.put_signal(number, right, NUMBER, right, ARRIVED, 1)

    worker.wait_signal(region, ARRIVED, heddle.Compare.EQ, 1)
    print(f"rank {context.rank} got {mailbox[0]}")
    worker.quiet()  # until our own number is there


with heddle.Context() as context:
    exchange(context)  # a function: the array must be gone when the context leaves
