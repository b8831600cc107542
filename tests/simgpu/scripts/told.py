"""Says what a program is told about itself, as JSON, and ends with the exit code 3."""

import json
import os
import sys
from time import perf_counter, sleep

sleep(7)
seen = {
    "name": __name__,
    "file": __file__,
    "arguments": sys.argv,
    "path": sys.path[0],
    "main": sys.modules["__main__"].__dict__ is globals(),
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "bootstrap": [folder for folder in sys.path if "bootstrap" in folder],
}

import torch  # noqa: E402

seen["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
if seen["gpus"]:
    seen["sum"] = torch.ones(4, device=f"cuda:{len(seen['gpus']) - 1}").sum().item()
seen["seconds"] = perf_counter()
print(json.dumps(seen))
sys.exit(3)
