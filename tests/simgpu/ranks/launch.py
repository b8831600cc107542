"""Starts the two ranks of a module of this package, as torchrun would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def launch(module: str, **environment: str) -> list[dict[str, Any]]:
    """What each rank printed, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "WORLD_SIZE": "2",
        **environment,
    }
    command = [sys.executable, "-W", "ignore", "-m", f"tests.simgpu.ranks.{module}"]
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**common, "RANK": str(rank)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    results = []
    try:
        for rank in ranks:
            printed, errors = rank.communicate(timeout=180)
            assert rank.returncode == 0, errors
            results.append(json.loads(printed))
    finally:
        for rank in ranks:
            rank.kill()
    return results


def results_of(results: list[dict[str, Any]], check: str) -> list[Any]:
    """What both ranks found in a check; fails with the traceback of a rank that raised."""
    found = [rank[check] for rank in results]
    for rank, result in enumerate(found):
        if isinstance(result, dict) and "raised" in result:
            pytest.fail(f"rank {rank}:\n{result['raised']}")
    return found
