# Each rank of the job says who it is.
import heddle

with heddle.Context() as context:
    print(f"rank {context.rank} of {context.size}")
