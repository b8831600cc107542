"""torch.cuda's statistics, properties, seeds and switches, for simulated GPUs."""

import warnings

import pytest
import torch
from torch import nn

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


# ----------------------------------------------------------------------------- memory


def test_statistics_have_the_names_that_cuda_gives_them(machine):
    kept = torch.empty(1000, device=CUDA0)
    torch.empty(5000, device=CUDA0)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 4096
    assert (
        stats["allocated_bytes.all.peak"] == 4096 + 20480 - 480 or stats["allocated_bytes.all.peak"] == 24576
    )
    assert stats["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.freed"] == 4096
    assert (stats["allocation.all.current"], stats["allocation.all.allocated"]) == (1, 2)
    names = """
        active_bytes.all.current reserved_bytes.all.peak segment.all.current active.all.peak
        inactive_split.all.current inactive_split_bytes.large_pool.current
        requested_bytes.all.current allocated_bytes.small_pool.current
        oversize_allocations.current num_alloc_retries num_ooms num_sync_all_streams
        num_device_alloc num_device_free max_split_size
    """
    for name in names.split():
        assert name in stats
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 1
    assert torch.accelerator.memory_stats(0)["allocated_bytes.all.current"] == 4096
    del kept


def test_the_summary_is_a_table(machine):
    torch.empty(1 << 20, device=CUDA1)
    summary = torch.cuda.memory_summary(1)
    assert summary.startswith("simulated T4\n")
    assert "Allocated memory" in summary and "device ID 1" in summary


def test_a_share_of_the_memory(machine):
    torch.cuda.set_per_process_memory_fraction(0.1, 0)
    assert torch.cuda.get_per_process_memory_fraction(0) == 0.1
    assert torch.cuda.get_per_process_memory_fraction(1) == 1.0
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 2.00 GiB. GPU 0"):
        torch.empty(2 << 30, dtype=torch.uint8, device=CUDA0)
    assert torch.cuda.memory_stats(0)["num_ooms"] == 1
    torch.empty(2 << 30, dtype=torch.uint8, device=CUDA1)
    with pytest.raises(ValueError, match="Invalid fraction value: 2.0"):
        torch.cuda.set_per_process_memory_fraction(2.0)


@pytest.mark.parametrize("name", ["_record_memory_history", "_snapshot", "_dump_snapshot", "memory_snapshot"])
def test_the_history_of_allocations_is_refused_by_name(machine, name):
    with pytest.raises(NotImplementedError, match=rf"torch\.cuda\.memory\.{name} is not simulated"):
        getattr(torch.cuda.memory, name)()


# ----------------------------------------------------------------------------- devices


def test_what_properties_tell(machine):
    first, second = torch.cuda.get_device_properties(0), torch.cuda.get_device_properties(1)
    assert first.max_threads_per_multi_processor == 1024  # of a Turing
    assert first.L2_cache_size == 4 << 20
    assert (first.regs_per_multiprocessor, first.warp_size) == (65536, 32)
    assert first.uuid != second.uuid
    assert repr(first).startswith("_CudaDeviceProperties(name='Tesla T4', major=7, minor=5, total_memory=")
    with pytest.raises(NotImplementedError, match="clock_rate is not simulated"):
        _ = first.clock_rate
    with pytest.raises(AttributeError):
        _ = first.colour


@pytest.mark.parametrize("gpu", ["P100", "V100", "A100", "H100"])
def test_any_generation_of_gpu(gpu):
    with simgpu.simulate(f"2x{gpu}"):
        assert not torch.cuda.is_initialized()
        capability = torch.cuda.get_device_capability()
        assert torch.cuda.get_arch_list() == ["sm_{}{}".format(*capability)]
        assert torch.cuda.is_tf32_supported() is (capability >= (8, 0))
        assert torch.cuda.is_bf16_supported(including_emulation=False) is (capability >= (8, 0))
        assert isinstance(torch.cuda.can_device_access_peer(0, 1), bool)
        assert not torch.cuda.can_device_access_peer(0, 0)
        assert nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda")).device == CUDA0


def test_initialization_is_what_first_uses_a_gpu():
    with simgpu.simulate("2xT4"):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert not torch.cuda.is_initialized()
        torch.zeros(1, device="cuda")
        assert torch.cuda.is_initialized()
    with simgpu.simulate("2xT4"):
        torch.cuda.init()
        assert torch.cuda.is_initialized()


def test_versions_and_backends(machine):
    assert torch.version.cuda is not None
    assert torch.backends.cuda.is_built() and torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() > 8000
    assert torch.cuda.nccl.version() > (2, 0)
    assert torch.cuda.get_arch_list() == ["sm_75"]
    assert "compute_75" in torch.cuda.get_gencode_flags()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        assert torch.backends.cudnn.deterministic
    with pytest.raises(NotImplementedError, match="cufft_plan_cache"):
        torch.backends.cuda.cufft_plan_cache.clear()


def test_marks_for_a_profiler_are_accepted(machine):
    nvtx = torch.cuda.nvtx
    assert (nvtx.range_push("epoch"), nvtx.range_push("step")) == (0, 1)
    assert (nvtx.range_pop(), nvtx.range_pop(), nvtx.range_pop()) == (1, 0, -1)
    nvtx.range_end(nvtx.range_start("x"))
    nvtx.mark("here")
    with nvtx.range("batch {}", 3):
        pass
    with torch.cuda.profiler.profile():
        assert torch.cuda.cudart().cudaProfilerStart() == 0
    assert torch.cuda.cudart().cudaMemGetInfo(0)[1] == machine.devices[0].memory.capacity
    with pytest.raises(NotImplementedError, match=r"torch.cuda.cudart\(\).cudaHostRegister is not simulated"):
        torch.cuda.cudart().cudaHostRegister(0, 0, 0)


def test_telling_of_every_operation_that_waits(machine):
    tensor = torch.ones(2, device=CUDA0)
    torch.cuda.set_sync_debug_mode("error")
    for act in (tensor.sum().item, tensor.cpu, lambda: torch.ones(2).cuda(), lambda: bool(tensor.any())):
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            act()
    tensor.add_(1)
    tensor.to("cuda:1")
    torch.ones(2).pin_memory().to(CUDA0, non_blocking=True)
    torch.cuda.set_sync_debug_mode(1)
    assert torch.cuda.get_sync_debug_mode() == 1
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        assert tensor.sum().item() == 4.0
    torch.cuda.set_sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor.sum().item()
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        torch.cuda.set_sync_debug_mode("loud")


def test_the_accelerator_tells_more(machine):
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch._C._get_accelerator().type == "cuda"
    if hasattr(torch.accelerator, "get_memory_info"):
        assert torch.accelerator.get_memory_info(1)[1] == machine.devices[1].memory.capacity
    if hasattr(torch.accelerator, "Graph"):
        with pytest.raises(NotImplementedError, match=r"torch\.accelerator\.Graph is not simulated"):
            torch.accelerator.Graph()


def test_keeping_a_device_busy(machine):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(5_000_000)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 5.0


# ----------------------------------------------------------------------------- random numbers


def test_the_same_seed_gives_other_numbers_than_on_the_cpu(machine):
    draws = []
    for device in ("cpu", CUDA0, CUDA1):
        torch.manual_seed(1)
        draws.append(torch.rand(3, device=device).cpu())
    assert not torch.equal(draws[0], draws[1])
    assert torch.equal(draws[1], draws[2])
    torch.manual_seed(1)
    torch.rand(99, device=CUDA0)
    assert torch.equal(torch.rand(3, device=CUDA1).cpu(), draws[2])


def test_seeds_can_be_read_back(machine):
    torch.manual_seed(7)
    assert torch.initial_seed() == torch.cuda.initial_seed() == 7
    torch.cuda.manual_seed(2**63)
    assert torch.cuda.initial_seed() == 2**63
    torch.cuda.manual_seed(-1)
    assert torch.cuda.initial_seed() == 2**64 - 1
    generator = torch.Generator("cuda:1")
    assert generator.manual_seed(3) is generator
    assert generator.initial_seed() == 3
    assert torch.cuda.default_generators[1].device == CUDA1
    assert generator.seed() == generator.initial_seed()


def test_states_are_kept_and_put_back(machine):
    state = torch.cuda.get_rng_state_all()
    assert len(state) == 2 and {part.dtype for part in state} == {torch.uint8}
    first = torch.rand(2, device=CUDA1)
    torch.cuda.set_rng_state_all(state)
    assert torch.equal(torch.rand(2, device=CUDA1), first)
    for devices in ([0, 1], None):
        with torch.random.fork_rng(devices=devices):
            inside = torch.rand(2, device=CUDA1)
        assert torch.equal(torch.rand(2, device=CUDA1), inside)
    generator = torch.Generator("cuda:1").manual_seed(1)
    kept = generator.get_state()
    drawn = torch.randn(2, device=CUDA1, generator=generator)
    generator.set_state(kept)
    assert torch.equal(torch.randn(2, device=CUDA1, generator=generator), drawn)
    torch.randperm(4, device=CUDA1, generator=generator)
    nn.init.normal_(torch.empty(2, device=CUDA1), generator=generator)
