# Two ranks under asyncio: rank 0 asks, rank 1 answers.
import asyncio

import heddle


async def main(context):
    worker = context.worker()
    buffer = bytearray(64)
    if context.rank == 0:
        await worker.send(b"how late is it?", 1)
        got = await worker.recv(buffer, source=1)
        print("rank 0 got", bytes(buffer[: got.nbytes]).decode())
    else:
        got = await worker.recv(buffer)  # from anybody: got.source is who
        await worker.send(b"ten past eight", got.source)


with heddle.Context() as context:
    if context.size != 2:
        raise SystemExit("pair.py: start it with two ranks: python -m heddle.run -n 2 pair.py")
    asyncio.run(main(context))
