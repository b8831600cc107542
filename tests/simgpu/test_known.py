"""Without arithmetic: counters keep their values, and what depends on them reads right."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

from grader import simgpu

G = "cuda:1"


@pytest.fixture(autouse=True)
def machine():
    with simgpu.simulate("2xT4", math=False) as machine:
        yield machine


def rows(device: str = G) -> torch.Tensor:
    return torch.ones(4, 8, device=device)


def test_batch_norm_counts_its_batches():
    norm = nn.BatchNorm1d(8, momentum=None).to(G)
    for _ in range(3):
        norm(rows())
    other = copy.deepcopy(norm)
    other(rows())
    assert (norm.num_batches_tracked.item(), other.num_batches_tracked.tolist()) == (3, 4)
    assert repr(norm.num_batches_tracked) == "tensor(3, device='cuda:1')"
    fresh = nn.BatchNorm1d(8).to(G)
    fresh.load_state_dict(norm.state_dict())
    assert fresh.cpu().num_batches_tracked.item() == 3


def test_batch_norm_counts_under_data_parallel():
    model = nn.DataParallel(nn.BatchNorm1d(8, momentum=None).to("cuda:0"))
    for _ in range(2):
        model(rows("cuda:0"))
    assert model.module.num_batches_tracked.item() == 2


def test_weights_are_averaged():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).to(G)
    averaged = AveragedModel(model)
    for _ in range(3):
        averaged.update_parameters(model)
    assert averaged.n_averaged == 3
    update_bn([torch.ones(4, 8)] * 2, averaged, device=torch.device(G))
    assert averaged.module[1].num_batches_tracked.item() == 2


def test_what_is_made_of_counters_is_known():
    count = torch.tensor(3, device=G)
    count += 1
    assert (count * 2).item() == 8
    assert count > 3
    assert int(count.float()) == 4
    assert count.to("cuda:0").item() == 4


def test_what_depends_on_other_tensors_reads_zero():
    count = torch.tensor(3, device=G)
    assert (count * rows().sum()).item() == 0
    count += rows().long().sum()
    assert count.item() == 0
    count.fill_(2)
    assert count.item() == 0


def test_zeros_are_finite_and_equal():
    loss = rows().sum()
    assert torch.isfinite(loss)
    assert loss.isfinite().item()
    assert torch.isfinite(rows()).all()
    assert not torch.isnan(loss)
    assert torch.equal(rows(), rows())
    assert not torch.equal(rows(), rows()[:2])
