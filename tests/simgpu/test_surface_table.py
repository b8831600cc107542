"""The table of the supported surface is what the code says, and leaves nothing out."""

import re

import pytest
import torch

from grader.simgpu.surface import table


def test_every_public_callable_of_torch_cuda_has_a_status():
    statuses = {row.name: row.status for row in table.rows("torch.cuda")}
    public = {name for name in torch.cuda.__all__ if callable(getattr(torch.cuda, name, None))}
    assert set(statuses) == public - {name for name in public if name.startswith("_")}
    assert statuses["synchronize"] == statuses["memory_allocated"] == table.SIMULATED
    assert statuses["device"] == table.AS_IT_IS
    assert statuses["CUDAGraph"] == statuses["utilization"] == table.REFUSED


def test_what_is_simulated_is_described():
    rows = [row for row in table.rows("torch.cuda") if row.status == table.SIMULATED]
    assert [row.name for row in rows if not row.what] == []


@pytest.mark.filterwarnings("ignore")
def test_the_committed_page_is_what_the_code_gives(checkout):
    page = (checkout / "docs" / "simgpu-surface.md").read_text(encoding="utf-8")
    version = re.search(r"replaces in torch (\S+);", page)[1]
    if torch.__version__.partition("+")[0] != version:
        pytest.skip(f"the page was written for torch {version}")
    assert page == table.text(), "run python -m grader.simgpu.surface --write docs/simgpu-surface.md"
