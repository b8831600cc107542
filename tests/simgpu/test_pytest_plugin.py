"""The pytest plugin, on the tests of a project that knows nothing of it."""

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from grader.simgpu.machine import installed

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
# Installed, the plugin announces itself; in a bare checkout it has to be named.
NAMED = () if entry_points(group="pytest11", name="simgpu") else ("-p", "grader.simgpu.pytest_plugin")
PROJECT = """
import unittest

import pytest
import torch
from torch import nn

needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@needs_two
def test_parallel():
    model = nn.DataParallel(nn.Linear(4, 4).cuda())
    assert model.device_ids == [0, 1]
    assert model(torch.randn(8, 4).cuda()).device == torch.device("cuda:0")


@unittest.skipIf(torch.cuda.device_count() < 2, "needs two GPUs")
class Old(unittest.TestCase):
    def test_second(self):
        self.assertEqual(torch.ones(1, device="cuda:1").get_device(), 1)
"""
CONFTEST = """
import torch

COUNT = torch.cuda.device_count()


def pytest_report_header():
    return f"conftest.py sees {COUNT}"
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project's folder, with its tests and a way to run them."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pytester.makepyfile(test_project=PROJECT)
    pytester.makeconftest(CONFTEST)

    def run(*arguments, inside=True):
        arguments = [*NAMED, "-p", "no:cacheprovider", *arguments]
        return (
            pytester.runpytest_inprocess(*arguments) if inside else pytester.runpytest_subprocess(*arguments)
        )

    pytester.run_project = run
    return pytester


def test_guarded_tests_run_and_the_header_says_on_what(project):
    result = project.run_project("--simgpu", "2xT4")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["simulated GPUs: 2 x T4", "conftest.py sees 2"])
    assert installed() is None


def test_without_the_option_they_are_skipped(project):
    project.run_project().assert_outcomes(skipped=2)


def test_the_ini_file_may_ask_for_them(project):
    project.makeini("[pytest]\nsimgpu = 2xV100\n")
    result = project.run_project()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["simulated GPUs: 2 x V100"])


def test_visible_devices_limit_them(project, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    result = project.run_project("--simgpu", "2xT4")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["simulated GPUs: 1 x T4"])


def test_none_may_be_visible(project, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = project.run_project("--simgpu", "2xT4")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["simulated GPUs: none, CUDA_VISIBLE_DEVICES leaves no T4"])


def test_an_unknown_profile_is_a_usage_error(project):
    result = project.run_project("--simgpu", "2xT5")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: simgpu: no GPU profile is named 'T5'; did you mean T4?*"])


SINGLE = """
import pytest
import torch


@pytest.mark.simgpu("3xT4", math=False)
def test_marked():
    assert torch.cuda.device_count() == 3
    assert torch.ones(2, device="cuda:2").sum().item() == 0


def test_between():
    assert torch.cuda.device_count() == {before}


def test_fixture(simgpu):
    assert torch.cuda.device_count() == {before}
    machine = simgpu("4xV100")
    assert torch.cuda.device_count() == machine.count == 4
    simgpu("T4")
    assert torch.cuda.device_count() == 1


@pytest.mark.simgpu("2xT4")
class TestMarkedAlso:
    def test_both(self, simgpu):
        assert torch.cuda.device_count() == 2
        simgpu("3xT4")
        assert torch.cuda.device_count() == 3


def test_after():
    assert torch.cuda.device_count() == {before}


@pytest.mark.simgpu()
def test_says_nothing():
    pass


@pytest.mark.simgpu("2xT5")
def test_unknown():
    pass
"""


@pytest.mark.parametrize(("options", "before"), [([], 0), (["--simgpu", "2xT4"], 2)])
def test_single_tests_get_machines_of_their_own(project, options, before):
    path = project.makepyfile(test_single=SINGLE.format(before=before))
    result = project.run_project(path, "--strict-markers", *options)
    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(
        [
            "the marker simgpu takes GPUs*",
            "simgpu: no GPU profile is named 'T5'*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    assert installed() is None and torch.cuda.device_count() == 0


def test_workers_of_xdist_see_the_machine(project):
    pytest.importorskip("xdist")
    result = project.run_project("--simgpu", "2xT4", "-n", "1", inside=False)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["simulated GPUs: 2 x T4"])


@pytest.fixture
def plain(pytester, monkeypatch):
    """A project without torch, where the plugin is installed as a package's entry point."""
    metadata = pytester.mkdir("site") / "simgpu-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: simgpu\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nsimgpu = grader.simgpu.pytest_plugin\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(metadata.parent)]))
    pytester.makepyfile(
        "import sys\n\n\ndef test_lean():\n    assert not {'torch', 'pydantic'} & {*sys.modules}\n"
    )
    return pytester


def test_it_costs_nothing_where_nobody_asks_for_it(plain):
    plain.runpytest_subprocess("--trace-config").assert_outcomes(passed=1)


def test_it_can_be_switched_off(plain):
    result = plain.runpytest_subprocess("-p", "no:simgpu", "--simgpu", "2xT4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --simgpu*"])
