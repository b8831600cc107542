"""The machines that most tests of the simulation run on."""

import pytest

from grader import simgpu


@pytest.fixture(params=[True, False], ids=["math", "no-math"])
def machine(request):
    """Two T4, with and without arithmetic."""
    with simgpu.simulate("2xT4", math=request.param) as machine:
        yield machine


@pytest.fixture
def exact():
    """Two T4 that compute."""
    with simgpu.simulate("2xT4") as machine:
        yield machine
