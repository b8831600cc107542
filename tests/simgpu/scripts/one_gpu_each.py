"""Two processes that each see one GPU, and train with DistributedDataParallel: a launcher of one's own."""

import multiprocessing
import os
import socket
import sys


def work(rank, port):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).cuda(), device_ids=[0])
    model(torch.full((2, 4), rank + 1.0, device="cuda")).sum().backward()
    if rank == 0:
        print(torch.cuda.device_count(), model.module.weight.grad.tolist(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [context.Process(target=work, args=(rank, port)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode for process in processes))
