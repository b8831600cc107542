"""Processes that a simulated program starts see the same machine; forks may do what CUDA lets them do."""

import json

import pytest

from tests.simgpu.scripts.running import simgpu

REFUSED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
    "'spawn' start method"
)
BATCHES = [[[0, 1, 2, 3], True], [[4, 5, 6, 7], True]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    own = tmp_path_factory.mktemp("own")
    (own / "sitecustomize.py").write_text("import sys\n\nsys.own_sitecustomize = 'ran'\n")
    done = simgpu("run", "--gpus", "2xT4", "--quiet", "starting.py", PYTHONPATH=str(own))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_fork_may_use_what_its_parent_has_not(seen):
    assert seen["fork before CUDA is initialized"] == [[2, 2], False, 0]


def test_a_fork_cannot_use_what_its_parent_has(seen):
    assert seen["fork after CUDA is initialized"] == [REFUSED, True, 0]


def test_workers_of_a_loader_may_stay_on_the_cpu(seen):
    assert seen["fork, loaded"] == BATCHES
    assert seen["spawn, loaded"] == BATCHES


def test_a_forked_worker_that_uses_a_gpu_is_refused(seen):
    assert REFUSED in seen["fork, refused"]
    assert "grader" not in seen["fork, refused"]


def test_spawned_processes_and_other_pythons_see_the_machine(seen):
    assert seen["spawned"][2] == 2
    assert seen["subprocess"][0] == "2"


def test_tensors_of_a_gpu_are_shared_with_other_processes(seen):
    assert seen["spawned"] == ["cuda:1", "Parameter", 2, [1, 1, 1]]


def test_a_process_may_be_given_some_of_the_gpus(seen):
    assert seen["subprocess with one visible"][0] == "1"


def test_a_process_without_torch_is_left_alone(seen):
    torch, pydantic, own, *path = seen["without torch"]
    assert (torch, pydantic) == ("False", "False")
    assert own == "ran"  # a sitecustomize.py that the bootstrap's hides
    assert not any("bootstrap" in folder for folder in path)


def test_clocks_that_were_taken_before_torch_are_virtual(seen):
    assert seen["subprocess"][1] == "True"


def test_waiting_for_processes_takes_no_virtual_time(seen):
    assert seen["seconds"] < 1


def test_processes_that_each_see_one_gpu_are_ranks_on_gpus_of_their_own():
    done = simgpu("run", "--gpus", "2xT4", "one_gpu_each.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 [[3.0, 3.0, 3.0, 3.0]]\n"  # the mean of 2 x 1 and 2 x 2
    assert "rank 0 of 2" in done.stderr
    assert "rank 1" not in done.stderr
