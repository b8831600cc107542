"""`simgpu run` as a person sees it: the script's own world, its end, and what is said about a mistake."""

import json
import os
import signal
from pathlib import Path

import pytest

from grader.simgpu import command, launch, specification, visible
from tests.simgpu.scripts.running import HERE, simgpu


@pytest.fixture(scope="module")
def told():
    return simgpu(
        "run", "--gpus", "3xV100", "told.py", "--gpus", "9", "-m", "--", "--help", PYTHONPATH="/nowhere"
    )


def test_a_script_is_told_what_python_tells_it(told):
    seen = json.loads(told.stdout)
    assert seen["name"] == "__main__" and seen["main"]
    assert seen["file"] == str(HERE / "told.py")
    assert seen["path"] == str(HERE)
    assert seen["bootstrap"] == []


def test_options_end_at_the_script(told):
    assert json.loads(told.stdout)["arguments"] == ["told.py", "--gpus", "9", "-m", "--", "--help"]


def test_it_sees_the_gpus_and_their_clock(told):
    seen = json.loads(told.stdout)
    assert seen["gpus"] == ["Tesla V100-SXM2-16GB"] * 3
    assert seen["sum"] == 4
    assert 7 < seen["seconds"] < 7.1  # clocks that were taken before torch was imported


def test_its_exit_code_is_kept_and_the_summary_goes_to_standard_error(told):
    assert told.returncode == 3
    assert told.stdout.count("\n") == 1
    assert "3xV100: 7" in told.stderr and "simulated, profile V100" in told.stderr


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    files = folder / "trace.json", folder / "report.html"
    options = "--gpus", "2xT4", "--trace", files[0], "--report", files[1]
    return simgpu("run", *options, "-m", "package", "x"), files


def test_a_module_runs_and_fails_with_its_own_frames_only(failed):
    done, _ = failed
    assert done.stdout == "trained ['x'] cuda:0\n"
    assert done.returncode == 1
    assert "in forget\n    return net.module(torch.randn(32, 64))" in done.stderr
    assert "RuntimeError: Expected all tensors to be on the same device" in done.stderr
    assert "simgpu/" not in done.stderr.replace("tests/simgpu/", "")
    assert "_dynamo" not in done.stderr and "_ops.py" not in done.stderr


def test_a_run_that_failed_is_shown_too(failed):
    done, (trace, report) = failed
    summary = done.stderr.partition("RuntimeError")[2]
    assert "2xT4: " in summary and "The program ended with an error" in summary
    assert "\n- " not in summary  # no advice on the speed of what does not work
    assert json.loads(trace.read_text())["traceEvents"]
    assert "<html" in report.read_text()


def test_an_interrupt_ends_it_as_it_ends_python(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text("print('before', flush=True)\nraise KeyboardInterrupt\n")
    done = simgpu("run", "--quiet", script)
    assert done.returncode == -signal.SIGINT  # 130 in a shell
    assert done.stdout == "before\n"
    assert done.stderr.endswith("KeyboardInterrupt\n") and "simulated" not in done.stderr


def test_torchrun_is_a_program_whose_processes_are_simulated(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, torch\n"
        "rank = int(os.environ['LOCAL_RANK'])\n"
        "x = torch.ones(8, device=f'cuda:{rank}')\n"
        "print(f'rank {rank} {x.sum().item()} of {torch.cuda.device_count()}', flush=True)\n"
    )
    done = simgpu("run", "--gpus", "2xT4", "torchrun", "--nproc-per-node", "gpu", script)
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 8.0 of 2", "rank 1 8.0 of 2"]
    assert done.returncode == 0
    assert done.stderr.count("simulated, profile T4") == 1 and "rank 0 of 2:" in done.stderr


def test_no_gpu_is_left_where_none_is_visible():
    done = simgpu("run", "told.py", CUDA_VISIBLE_DEVICES="")
    seen = json.loads(done.stdout)
    assert seen["gpus"] == [] and seen["visible"] == ""
    assert "CUDA_VISIBLE_DEVICES leaves none of the 2 GPUs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "trian.py"], "trian.py is not a file"),
        (["run", "no/such/train.py"], "there is no folder no/such"),
        (["run", "tolt.py"], "did you mean told.py?"),
        (["run", "torchrum"], "torchrum is neither a file nor a program on PATH"),
        (["run", "-m", "no_such_module"], "has no module named 'no_such_module'"),
        (["run", "-m", "..."], "has no module named '...'"),
        (["run", "--gpus", "2xT5", "told.py"], "no GPU profile is named 'T5'; did you mean T4?"),
        (["run", "--gpus", "0", "told.py"], "asks for 0 GPUs"),
        (["run", "--gpus", "2xmine.yaml", "told.py"], "mine.yaml is not a file"),
        (["run", "--cpus", "2", "told.py"], "No such option: --cpus"),
        (["run"], "Missing argument 'SCRIPT'"),
        (["run", "--trace", "no/such/trace.json", "told.py"], "there is no folder no/such"),
        (["run", "--report", ".", "told.py"], "--report . is a folder"),
        (["run", "--trace", "told.py", "told.py"], "--trace told.py is the script itself"),
        (["run", "--trace", "a", "--report", "a", "told.py"], "--report a is written by another option, too"),
        (["run", "--report", "/proc/report.html", "told.py"], "--report /proc/report.html cannot be written"),
        (["run", "."], "is a folder without a __main__.py"),
        (["profiles", "T5"], "did you mean T4?"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_a_mistake_is_a_sentence_and_the_exit_code_2(arguments, said, monkeypatch, capsys):
    monkeypatch.chdir(HERE)
    assert command.execute(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("simgpu: ") and said in err
    assert "Traceback" not in err


def test_a_program_without_gpus_is_said_to_have_used_none(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text("print(1)\n")
    done = simgpu("run", script)
    assert done.stdout == "1\n"
    assert done.stderr.strip() == "simgpu: the program put nothing on the simulated GPUs"
    explained = simgpu("explain", script)
    assert "the script put nothing on a GPU" in explained.stderr


def test_what_is_asked_to_be_written_over_stays_until_there_is_something_else(tmp_path, monkeypatch, capsys):
    (tmp_path / "kept.json").write_text("earlier")
    monkeypatch.chdir(tmp_path)
    assert command.execute(["run", "--trace", "kept.json", "missing.py"]) == 2
    assert (tmp_path / "kept.json").read_text() == "earlier"
    assert os.listdir(tmp_path) == ["kept.json"]


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    nothing = tmp_path / "nothing.py"
    nothing.write_text("import torch\ntorch.ones(1).cuda()\n")
    done = simgpu("run", "--quiet", "--trace", os.devnull, nothing)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(os.devnull).is_file()


def test_an_unreadable_script_is_told(tmp_path, monkeypatch):
    script = tmp_path / "secret.py"
    script.write_text("")

    def refuse(self, *args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(launch.NothingToRun, match="cannot be read: Permission denied"):
        launch.command(str(script), [])


@pytest.mark.parametrize(
    ("text", "meant"),
    [("2", "2xT4"), ("v100", "1xV100"), ("3xt4", "3xT4"), (" 2xT4 ", "2xT4"), ("4xa100+pcie4-peer", None)],
)
def test_gpus_are_understood(text, meant):
    assert specification.full(text) == (meant or "4xA100+pcie4-peer")


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("3, 1", [3, 1]),
        ("0,1,2,3", [0, 1, 2, 3]),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("1,1", []),
        ("NoDevFiles", []),
        ("GPU-5ebe9f43", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(value, left):
    assert visible.numbers(value, 4) == left


def test_profiles_are_listed_within_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.execute(["profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("NVIDIA" in line or "Tesla" in line or "Quadro" in line for line in lines) >= 14
    assert next(line for line in lines if line.startswith("T4 ")).split()[1:4] == ["Tesla", "T4", "14.7"]


def test_a_profile_is_shown_with_its_sources(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    assert command.execute(["profiles", "T4"]) == 0
    out = capsys.readouterr().out
    assert "achieved_bandwidth_gb_s" in out and "estimate, 75 % of the peak" in out
    assert "module_us" in out and "66 to 130" in out
