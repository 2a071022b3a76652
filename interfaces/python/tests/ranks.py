"""What the ranks of the tests' jobs do. `ranks.py FUNCTION` calls it with a context, and says that it has passed."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import numpy as np

import heddle


def one_sided(context: heddle.Context) -> None:
    worker = context.worker()
    size, rank = context.size, context.rank
    table = context.alloc(8 * size + 16)
    mine = np.frombuffer(memoryview(table), np.uint64)
    peers = context.exchange(table)
    assert [peer.rank for peer in peers] == list(range(size))
    for peer in peers:
        worker.put(np.uint64(100 + rank), peer, 8 * rank).wait()
    worker.quiet()
    context.barrier(worker)
    assert mine[:size].tolist() == [100 + i for i in range(size)]

    got = np.zeros(size, np.uint64)
    worker.get(got, peers[(rank + 1) % size]).wait()
    assert got.tolist() == [100 + i for i in range(size)]

    worker.add(peers[0], 8 * size, 1)
    worker.quiet()
    old = worker.fetch_add(peers[0], 8 * size, 1)
    assert old < 2 * size
    context.barrier(worker)
    if rank == 0:
        assert mine[size] == 2 * size

    # Data that a signal follows.
    right = peers[(rank + 1) % size]
    left = (rank - 1) % size
    worker.put_signal(np.uint64(7 + rank), right, 0, right, 8 * (size + 1), 1)
    worker.wait_signal(table, 8 * (size + 1), heddle.Compare.EQ, 1, timeout=60)
    assert mine[0] == 7 + left
    context.barrier(worker)

    name = context.exchange_bytes(table.pack().ljust(128, b"\0"))[left]
    region = context.unpack(name.rstrip(b"\0").ljust(len(table.pack()), b"\0"))
    assert region.rank == left and region.nbytes == table.nbytes
    context.barrier(worker)
    del mine


def registered(context: heddle.Context) -> None:
    worker = context.worker()
    right, left = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    for adopt in (False, True):
        array = np.zeros(1 << 18, np.float64)
        region = context.register(array, adopt=adopt)
        peers = context.exchange(region)
        data = np.full(1 << 18, context.rank + 0.5)
        request = worker.put(data, peers[right])
        del data  # the operation keeps it
        request.wait(timeout=60)
        worker.quiet()
        context.barrier(worker)
        assert array.min() == array.max() == left + 0.5
        context.barrier(worker)
        region.release()
        assert array[-1] == left + 0.5, "the array keeps what was put"


def own_arrays(context: heddle.Context) -> None:
    """Peers reach all of an array of zeros(); over shm its owner need not do anything."""
    worker = context.worker()
    direct = os.environ["HEDDLE_TRANSPORT"] == "shm"
    mine = context.zeros((3, 5), np.uint64)
    assert mine.shape == (3, 5) and mine.dtype == np.uint64 and not mine.any()
    peers = context.exchange(mine)
    for peer in peers:
        assert peer.nbytes == mine.nbytes
        assert peer.is_mapped(0, peer.nbytes) or not direct
    context.barrier(worker)
    if context.rank != 0:
        for offset in (0, mine.nbytes - 8):
            worker.fetch_add(peers[0], offset, 1)
    context.barrier(worker)
    if context.rank == 0:
        assert mine[0, 0] == mine[2, 4] == context.size - 1
    # What is received, reduced and sent lies in such an array as in any other.
    numbers = context.empty(100_000)
    numbers[:] = context.rank
    total = context.empty(100_000)
    heddle.Team(context).allreduce(numbers, total)
    assert total[0] == total[-1] == sum(range(context.size))
    context.barrier(worker)
    context.register(mine).release()
    mine[0, 0] = 7  # one's own again
    assert mine[0, 0] == 7


def tagged(context: heddle.Context) -> None:
    worker = context.worker()
    right, left = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    for length in (0, 1, 1000, 100_000, 3_000_000):
        buffer = bytearray(length)
        got = worker.recv(buffer, left, 9)
        sent = worker.send(bytes([context.rank]) * length, right, 9)
        got.wait(timeout=60)
        sent.wait(timeout=60)
        assert (got.source, got.source_worker, got.tag, got.nbytes) == (left, 0, 9, length)
        assert bytes(buffer) == bytes([left]) * length
    # Any source, a mask, a message that is too long, one that is looked at first.
    worker.send(b"12345678", right, 0x1234)
    while (found := worker.probe(tag=0x34, mask=0xFF)) is None:
        worker.wait()
    assert (found.source, found.tag, found.nbytes) == (left, 0x1234, 8)
    small = bytearray(3)
    got = worker.recv(small, heddle.ANY, 0x34, 0xFF)
    try:
        got.wait(timeout=60)
        raise AssertionError("no error")
    except heddle.TruncatedError as error:
        assert error.status == heddle.Status.TRUNCATED and "8 bytes" in str(error)
    assert small == b"123" and got.nbytes == 8
    # In one call: short, and fetched from the sender.
    for length in (8, 3_000_000):
        buffer = bytearray(length)
        sent = worker.send(bytes([context.rank]) * length, right, 10)
        came = worker.recv_wait(buffer, heddle.ANY, 10, timeout=60)
        sent.wait(timeout=60)
        assert (came.source, came.source_worker, came.tag, came.nbytes) == (left, 0, 10, length)
        assert bytes(buffer) == bytes([left]) * length
    context.barrier(worker)


def active(context: heddle.Context) -> None:
    worker = context.worker()
    got: list[tuple[int, bytes, int]] = []

    def answer(message: heddle.Message) -> None:
        got.append((message.source, message.header, len(message.payload)))
        worker.am(message.source, 2, message.payload[:3], target_worker=message.source_worker)

    answers: list[bytes] = []
    context.on_message(1, answer)
    context.on_message(2, lambda message: answers.append(message.payload))
    context.barrier(worker)
    for target in range(context.size):
        worker.am(target, 1, b"x" * 100_000, header=b"head")
    while len(answers) < context.size or len(got) < context.size:
        worker.run_tasks(timeout=60)
    assert sorted(got) == [(i, b"head", 100_000) for i in range(context.size)]
    assert answers == [b"xxx"] * context.size
    context.barrier(worker)


def collectives(context: heddle.Context) -> None:
    team = heddle.Team(context)
    size, rank = team.size, team.rank
    ones = np.full(1000, rank + 1.0)
    total = np.zeros(1000)
    team.allreduce(ones, total)
    assert total[0] == total[-1] == size * (size + 1) / 2
    data = np.arange(50) if rank == 1 % size else np.zeros(50, np.int64)
    team.broadcast(data, root=1 % size)
    assert data.tolist() == list(range(50))
    everyone = np.zeros((size, 3), np.int32)
    team.allgather(np.full(3, rank, np.int32), everyone)
    assert everyone[:, 0].tolist() == list(range(size))
    team.gather(np.full(3, rank, np.int32), everyone if rank == 0 else None)
    mine = np.zeros(3, np.int32)
    team.scatter(everyone if rank == 0 else None, mine)
    assert mine.tolist() == [rank] * 3
    crossed = np.zeros(size, np.int64)
    team.alltoall(np.arange(size) + 10 * rank, crossed)
    assert crossed.tolist() == [10 * i + rank for i in range(size)]
    part = np.zeros(2, np.float32)
    team.reduce_scatter(np.ones(2 * size, np.float32), part, op="max")
    assert part.tolist() == [1, 1]
    upto = np.zeros(1, np.uint8)
    team.scan(np.ones(1, np.uint8), upto)
    assert upto[0] == rank + 1
    team.reduce(ones, total if rank == 0 else None, op="max")
    assert rank != 0 or total[0] == size
    team.barrier()

    counts = [i + 1 for i in range(size)]
    ragged = np.zeros(sum(counts), np.int16)
    team.allgatherv(np.full(rank + 1, rank, np.int16), ragged, counts)
    assert ragged.tolist() == [i for i in range(size) for _ in range(i + 1)]
    got = np.zeros(size * (rank + 1), np.int16)
    team.alltoallv(ragged, counts, got, [rank + 1] * size)
    assert got.tolist() == [rank] * len(got)
    back = np.zeros(rank + 1, np.int16)
    team.scatterv(ragged if rank == 0 else None, counts if rank == 0 else None, back)
    assert back.tolist() == [rank] * (rank + 1)
    team.gatherv(back, ragged if rank == 0 else None, counts if rank == 0 else None)

    right, left = (rank + 1) % size, (rank - 1) % size
    halo = np.zeros(2, np.float64)
    team.neighbor_alltoall([left, right], [right, left], np.full(2, float(rank)), halo)
    assert halo.tolist() == [left, right]
    team.neighbor_allgather([left], [right], np.full(1, float(rank)), halo[:1])
    team.neighbor_alltoallv([left], [right], np.full(2, float(rank)), [2], halo, [2])
    assert halo.tolist() == [left, left]

    again = team.persistent().allreduce(ones, total)
    for i in range(20):
        ones[:] = i
        again.start()
        again.wait(timeout=60)
        assert total[-1] == i * size
    assert again.algorithm.startswith("allreduce")
    team.barrier()
    again.free()
    begun = team.start.broadcast(data)
    while not begun.test():
        pass
    half = team.split(rank % 2, key=-rank)
    assert half is not None and half.size == (size + 1 - rank % 2) // 2
    half.barrier()
    assert half.translate(half.rank, team) == rank
    first = team.subset([0])
    assert (first is None) == (rank != 0)
    assert team.split(None) is None
    team.barrier()
    half.free()


def wrong_collectives(context: heddle.Context) -> None:
    team = heddle.Team(context)
    for call, error in (
        (lambda: team.allgather(np.zeros(3), np.zeros(2)), heddle.ArgumentError),
        (lambda: team.allreduce(np.zeros(3), np.zeros(2)), heddle.ArgumentError),
        (lambda: team.reduce_scatter(np.zeros(3 * team.size), np.zeros(2)), heddle.ArgumentError),
        (lambda: team.allreduce(np.zeros(3, np.float16), np.zeros(3, np.float16)), TypeError),
        (lambda: team.allreduce(np.zeros(3), np.zeros(3), op="average"), ValueError),
        (lambda: team.allgatherv(np.zeros(3), np.zeros(8), [1] * team.size), ValueError),
        (lambda: team.allgatherv(np.zeros(1), np.zeros(1), [1] * (team.size + 1)), ValueError),
        (lambda: team.broadcast(np.zeros(3), root=99), heddle.ArgumentError),
        (lambda: team.broadcast(b"read-only"), BufferError),
        (lambda: team.persistent(algorithm="broadcast.magic").broadcast(bytearray(3)), heddle.ArgumentError),
    ):
        try:
            call()
        except error:
            continue
        raise AssertionError(f"{error} was not raised")
    context.barrier()


def partitioned(context: heddle.Context) -> None:
    worker = context.worker()
    right, left = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    out = np.zeros(1024, np.int32)
    into = np.zeros(1024, np.int32)
    send = worker.psend(out, 8, right, 4)
    receive = worker.precv(into, 4, left, 4)
    for turn in range(5):
        receive.start()
        send.start()

        def fill(part: int, turn: int = turn) -> None:
            out[128 * part : 128 * (part + 1)] = 1000 * turn + context.rank
            send.ready(part)

        threads = [threading.Thread(target=fill, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while not receive.arrived(3):
            pass
        receive.wait(timeout=60)
        send.wait(timeout=60)
        assert into.min() == into.max() == 1000 * turn + left
    context.barrier(worker)
    send.free()
    receive.free()


def threads(context: heddle.Context) -> None:
    """Each thread with a worker of its own, and all on one."""
    shared = context.worker()
    workers = [context.worker() for _ in range(4)]
    right, left = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    context.barrier(shared)
    errors: list[BaseException] = []

    def talk(number: int) -> None:
        try:
            own = workers[number]
            for i in range(200):
                for worker in (own, shared):
                    there = worker.index
                    buffer = bytearray(16)
                    got = worker.recv(buffer, left, number)
                    worker.send(b"%08d%08d" % (number, i), right, number, there)
                    got.wait(timeout=60)
                    assert buffer == b"%08d%08d" % (number, i)
        except BaseException as error:
            errors.append(error)

    all_threads = [threading.Thread(target=talk, args=(i,)) for i in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert not errors, errors
    context.barrier(shared)


def waits_release_the_gil(context: heddle.Context) -> None:
    worker = context.worker()
    context.barrier(worker)
    if context.rank != 0:
        buffer = bytearray(1)
        worker.recv(buffer, 0, 1).wait(timeout=60)
        worker.send(buffer, 0, 2).wait()
        context.barrier(worker)
        return
    # This rank waits in one thread while another one counts.
    buffer = bytearray(1)
    waits = [worker.recv(buffer, source, 2) for source in range(1, context.size)]

    errors: list[BaseException] = []

    def wait_for_all() -> None:
        try:
            for one in waits:
                one.wait(timeout=60)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait_for_all)
    thread.start()
    turns = 0
    while turns < 100_000:  # which only ends if the waiting thread lets it
        turns += 1
    assert thread.is_alive() and not any(one.done for one in waits), "nobody has answered yet"
    for target in range(1, context.size):
        worker.send(b"!", target, 1)
    thread.join()
    assert not errors, errors
    context.barrier(worker)


def awaits(context: heddle.Context) -> None:
    worker = context.worker()
    team = heddle.Team(context)
    right, left = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    context.barrier(worker)

    async def ring() -> None:
        buffer = bytearray(8)
        for i in range(300):
            if context.rank == 0:
                await worker.send(i.to_bytes(8, "little"), right)
            got = await worker.recv(buffer, left)
            assert got.nbytes == 8 and int.from_bytes(buffer, "little") == i
            if context.rank != 0:
                await worker.send(buffer, right)

    async def many() -> None:
        buffers = [bytearray(100_000) for _ in range(20)]
        gets = [worker.recv(buffer, left, 100 + i) for i, buffer in enumerate(buffers)]
        sends = [worker.send(bytes([i]) * 100_000, right, 100 + i) for i in reversed(range(20))]

        async def one(request: heddle.Request) -> int:
            return (await request).nbytes

        assert await asyncio.gather(*(one(get) for get in gets)) == [100_000] * 20
        for request in sends:
            await request
        assert all(buffer == bytes([i]) * 100_000 for i, buffer in enumerate(buffers))

    async def while_others_run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        buffer = bytearray(8)
        got = worker.recv(buffer, left, 50)
        while ticks < 20:
            await asyncio.sleep(0.001)
        await worker.send(b"12345678", right, 50)
        await got
        await team.start.allreduce(np.ones(4), np.zeros(4))
        ticker.cancel()

    async def cancelled() -> None:
        got = worker.recv(bytearray(8), left, 999)
        try:
            await asyncio.wait_for(got, 0.05)
            raise AssertionError("nothing was sent")
        except asyncio.TimeoutError:
            pass
        assert got.status == heddle.Status.CANCELLED

    async def all_of_it() -> None:
        await ring()
        await many()
        await while_others_run()
        await cancelled()

    asyncio.run(all_of_it())
    asyncio.run(ring())  # in another loop
    context.barrier(worker)


def serves(context: heddle.Context) -> None:
    """Handlers in the event loop, and coroutines as handlers."""
    from heddle import aio

    worker = context.worker()
    size = context.size
    answered: list[int] = []

    async def main() -> None:
        over = asyncio.Event()

        @aio.in_tasks
        async def question(message: heddle.Message) -> None:
            await asyncio.sleep(0)
            await worker.am(message.source, 2, message.payload)

        def answer(message: heddle.Message) -> None:
            answered.append(message.payload[0])
            if len(answered) == size:
                over.set()

        context.on_message(1, question)
        context.on_message(2, answer)
        context.barrier(worker)
        serving = asyncio.create_task(aio.serve(worker))
        for target in range(size):
            await worker.am(target, 1, bytes([target]))
        await asyncio.wait_for(over.wait(), 60)
        # Others may still ask.
        await heddle.Team(context).start.barrier()
        serving.cancel()

    asyncio.run(main())
    assert sorted(answered) == list(range(size))
    context.barrier(worker)


def survives_a_death(context: heddle.Context) -> None:
    import os
    import signal

    worker = context.worker()
    context.barrier(worker)
    victim = context.size - 1
    if context.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    got = worker.recv(bytearray(8), victim, 3)

    async def wait() -> None:
        try:
            await asyncio.wait_for(got, 60)
            raise AssertionError("it was sent by nobody")
        except heddle.PeerFailedError as error:
            assert isinstance(error, ConnectionError) and error.status == heddle.Status.PEER_FAILED

    asyncio.run(wait())
    assert not context.is_alive(victim)
    try:
        worker.send(b"x", victim, remote=True).wait(timeout=60)
        raise AssertionError("to a dead rank")
    except heddle.PeerFailedError:
        pass
    print("survives_a_death passed", flush=True)


def raises(context: heddle.Context) -> None:
    """An exception of one rank ends the job, although others wait."""
    worker = context.worker()
    context.barrier(worker)
    if context.rank == 1:
        raise RuntimeError("this rank has had enough")
    context.barrier(worker)


def main() -> None:
    name = sys.argv[1]
    context = heddle.Context()
    if name == "survives_a_death":
        survives_a_death(context)
        return
    with context:
        globals()[name](context)
    print(f"{name} passed", flush=True)


if __name__ == "__main__":
    main()
