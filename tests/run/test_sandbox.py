"""What a run is shut off from, and what is said where it cannot be."""

from __future__ import annotations

import subprocess

import pytest

from grader.run import sandbox


@pytest.fixture(autouse=True)
def fresh():
    sandbox.isolation.cache_clear()
    yield
    sandbox.isolation.cache_clear()


def test_a_host_without_unshare_is_not_isolated(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert sandbox.isolation() == ()


def test_a_host_that_refuses_namespaces_is_not_isolated(monkeypatch):
    refused = subprocess.CompletedProcess([], returncode=1)
    monkeypatch.setattr(sandbox.subprocess, "run", lambda *args, **kwargs: refused)
    assert sandbox.isolation() == ()


def test_root_without_the_right_to_namespaces_tries_one_of_a_user(monkeypatch):
    def run(command, **kwargs):
        return subprocess.CompletedProcess(command, returncode=0 if "--user" in command else 1)

    monkeypatch.setattr(sandbox.os, "getuid", lambda: 0)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sandbox.subprocess, "run", run)
    assert "--user" in sandbox.isolation()


def test_without_isolation_runs_work_and_leave_nothing_behind(monkeypatch, tmp_path):
    from grader.exercise import Limits
    from grader.run.exchange import Request
    from grader.run.launch import Server

    from .conftest import DATA
    from .test_launch import alive

    monkeypatch.setattr(sandbox, "isolation", lambda: ())
    marker = "sleep 61803"
    script = tmp_path / "train.py"
    script.write_text(f"import subprocess\nsubprocess.Popen({marker.split()!r}, start_new_session=True)\n")
    with Server(visible="") as server:
        request = Request(script, [DATA], "accuracy", "2xT4", "synthetic:80", Limits(seconds=60))
        assert server.run(request, lambda fence: True).outcome == "completed"
        assert alive(marker) == []
        script.write_text(
            f"import os, signal, subprocess\nsubprocess.Popen({marker.split()!r}, start_new_session=True)\n"
            "os.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass\n"
        )
        assert server.run(request, lambda fence: True).outcome == "killed"
        assert alive(marker) == []
        script.write_text("print('next')\n")
        assert server.run(request, lambda fence: True).output == b"next\n"


def test_the_environment_is_an_allow_list(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "AWS_SECRET_ACCESS_KEY" not in sandbox.environment(None, "/tmp")
    assert sandbox.environment(None, "/tmp")["CUDA_VISIBLE_DEVICES"] == "3"
    assert sandbox.environment("", "/tmp")["CUDA_VISIBLE_DEVICES"] == ""
