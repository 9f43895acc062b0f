# SPDX-License-Identifier: Apache-2.0
"""Processes that form groups of torch.distributed, started once, and given one function after the other to run."""

import datetime
import multiprocessing
import os
import pickle
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

SECONDS = 90.0


class Ranks:
    """Four processes; the first one, and the first two, are groups of their own."""

    SIZES = (1, 2, 4)

    def __init__(self, folder: Path, imported: tuple[str, ...] = ()):
        # One process imports what all need, and the ranks are its forks.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(imported))
        pipes = [context.Pipe() for _ in range(max(self.SIZES))]
        self._ends = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_serve, args=(rank, folder / "store", theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        try:
            for process in self._processes:
                process.start()
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)

    def run(self, size: int, function, *args) -> list:
        """What function(group, *args) returns on each rank of the group. A module has it by its name."""
        job = pickle.dumps((size, function, args))
        for end in self._ends[:size]:
            end.send_bytes(job)
        for rank, end in enumerate(self._ends[:size]):
            assert end.poll(SECONDS), f"rank {rank} of {size} gave no answer"
        answers = [pickle.loads(end.recv_bytes()) for end in self._ends[:size]]
        for rank, (is_result, answer) in enumerate(answers):
            assert is_result, f"rank {rank} of {size}:\n{answer}"
        return [answer for _, answer in answers]

    def stop(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)
            process.kill()


def _device(rank: int) -> torch.device:
    asked = torch.device(os.environ.get("QUIRE_TEST_DEVICE", "cpu"))
    return torch.device("cuda", rank) if asked.type == "cuda" else asked


def _serve(rank: int, store: Path, jobs) -> None:
    """One process: jobs until the other end closes."""
    device = _device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # nothing leaves this machine
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=max(Ranks.SIZES),
        timeout=datetime.timedelta(seconds=SECONDS / 3),
    )
    groups = {size: dist.new_group(list(range(size))) for size in Ranks.SIZES}
    while True:
        try:
            size, function, args = pickle.loads(jobs.recv_bytes())
        except (EOFError, ConnectionResetError):
            break
        try:
            with torch.no_grad():
                answer = True, function(groups[size], *args)
        except Exception:
            answer = False, traceback.format_exc()
        jobs.send_bytes(pickle.dumps(answer))
    dist.destroy_process_group()
