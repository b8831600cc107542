"""Scripts of every temper: whatever they do, an account of it comes back and nothing is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from grader.evidence import RunOutcome
from grader.exercise import Limits
from grader.run.exchange import Request
from grader.run.launch import Server
from grader.run.sandbox import isolation

from .conftest import DATA, LIMITS


def alive(marker: str) -> list[str]:
    """Return the command lines of processes that carry `marker`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marker in line and str(os.getpid()) != entry.parent.name:
            found.append(line)
    return found


def test_a_script_that_ends_is_completed_and_its_output_comes_back(run_raw):
    raw = run_raw("import sys\nprint('to the one')\nprint('to the other', file=sys.stderr)")
    assert raw.outcome is RunOutcome.COMPLETED
    assert b"to the one" in raw.output and b"to the other" in raw.output


def test_exit_zero_is_an_end_and_another_code_is_an_error(run_raw):
    assert run_raw("raise SystemExit").outcome is RunOutcome.COMPLETED
    raw = run_raw("import sys; sys.exit(3)")
    assert raw.outcome is RunOutcome.ERROR
    assert raw.end.error.message == "the script ended itself with exit code 3"


@pytest.mark.parametrize("code", [0, 1, 7])
def test_leaving_without_a_word_is_not_completion(run_raw, code):
    raw = run_raw(f"import os; os._exit({code})")
    assert raw.outcome is RunOutcome.KILLED
    assert f"exit code {code}" in raw.detail


def test_an_endless_loop_meets_the_wall_clock(run_raw):
    raw = run_raw(
        "import time\ndef wait():\n    while True:\n        pass\nwait()\n", limits=Limits(seconds=2)
    )
    assert raw.outcome is RunOutcome.TIMEOUT
    assert "after 2 s" in raw.detail
    assert (raw.stopped_at.file, raw.stopped_at.line) in (("train.py", 3), ("train.py", 4))


def test_a_flood_of_output_is_cut_and_the_script_goes_on(run_raw):
    raw = run_raw("for _ in range(40000): print('x' * 50)", limits=Limits(seconds=60, output_kilobytes=10))
    assert raw.outcome is RunOutcome.COMPLETED
    assert len(raw.output) == 10_000 and raw.output_truncated


def test_a_script_that_closes_its_output_still_completes(run_raw):
    assert run_raw("import os; os.close(1); os.close(2)").outcome is RunOutcome.COMPLETED


def test_host_memory_is_capped(run_raw):
    raw = run_raw("kept = bytearray(4_000_000_000)", limits=Limits(seconds=60, memory_gigabytes=1))
    assert raw.outcome is RunOutcome.OUT_OF_MEMORY
    assert raw.end.error.type == "MemoryError"


def test_processes_left_behind_are_gone(run_raw):
    marker = f"sleep 4{os.getpid()}"
    text = f"""
        import subprocess
        subprocess.Popen({marker.split()!r})
        subprocess.Popen({marker.split()!r}, start_new_session=True)
        subprocess.run("setsid nohup {marker} >/dev/null 2>&1 &", shell=True)
    """
    assert run_raw(text).outcome is RunOutcome.COMPLETED
    assert alive(marker) == []


def test_processes_left_behind_are_gone_after_a_timeout(run_raw):
    marker = f"sleep 5{os.getpid()}"
    text = (
        f"import subprocess\nsubprocess.Popen({marker.split()!r}, start_new_session=True)\nwhile True: pass"
    )
    assert run_raw(text, limits=Limits(seconds=1)).outcome is RunOutcome.TIMEOUT
    assert alive(marker) == []


def test_breeding_processes_is_ended(run_raw):
    text = """
        import os, time
        while True:
            if os.fork() == 0:
                time.sleep(60)
    """
    raw = run_raw(text.replace("while True:", "for _ in range(300):"), limits=Limits(seconds=30, tasks=20))
    assert raw.outcome is RunOutcome.KILLED
    assert "more than 20 processes" in raw.detail


def test_killing_the_parent_does_not_help_and_the_next_run_works(run_raw):
    raw = run_raw("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(5)")
    assert raw.outcome is not RunOutcome.ERROR
    assert run_raw("print('next')").output == b"next\n"


@pytest.mark.skipif(not isolation(), reason="this host allows no PID namespace of one's own")
def test_no_process_outside_can_be_signalled(run_raw):
    raw = run_raw(f"import os\nos.kill({os.getpid()}, 0)")
    assert raw.outcome is RunOutcome.ERROR
    assert raw.end.error.type == "ProcessLookupError"


@pytest.mark.skipif(not isolation(), reason="this host allows no PID namespace of one's own")
def test_covered_folders_are_empty_and_stay_so(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "solution.py").write_text("the answer")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, subprocess\n"
        f"print(subprocess.run(['umount', {str(hidden)!r}], capture_output=True).returncode != 0)\n"
        f"print(os.listdir({str(hidden)!r}))\n"
        f"open({str(hidden / 'solution.py')!r}, 'w')\n"
    )
    with Server(visible="", covered=[hidden]) as server:
        raw = server.run(
            Request(script, [DATA], "accuracy", "2xT4", "synthetic:80", LIMITS), lambda fence: True
        )
    assert raw.output.splitlines()[:2] == [b"True", b"[]"]
    assert (hidden / "solution.py").read_text() == "the answer"


def test_a_word_to_kill_that_comes_too_late_does_not_touch_the_next_run(server, run_raw):
    run_raw("print('first')")
    for _ in range(3):
        server._control.send(b"k")
    assert run_raw("print('next')").output == b"next\n"


def test_a_record_of_the_scripts_own_is_malformed(run_raw):
    text = """
        import os
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'{"record": "end", "outcome": "completed"}\\n')
            except OSError:
                pass
    """
    raw = run_raw(text)
    assert raw.outcome is RunOutcome.MALFORMED
    assert "did not write" in raw.detail


def test_too_many_records_are_refused(run_raw):
    text = """
        import os
        for descriptor in range(3, 64):
            try:
                for _ in range(100):
                    os.write(descriptor, b' ' * 60_000)
            except OSError:
                pass
    """
    raw = run_raw(text, limits=Limits(seconds=60, events_megabytes=1))
    assert raw.outcome is RunOutcome.MALFORMED
    assert "1 MB" in raw.detail


def test_secrets_of_the_environment_are_not_passed_on(run_raw, monkeypatch):
    monkeypatch.setenv("COURSE_TOKEN", "secret")
    raw = run_raw("import os\nprint('COURSE_TOKEN' in os.environ)")
    assert raw.output == b"False\n"


def test_the_graders_modules_for_judging_are_not_in_the_process(run_raw):
    raw = run_raw(
        "import sys\nprint([m for m in sys.modules if 'evaluate' in m or 'gather' in m or 'check' in m])"
    )
    assert raw.output.strip().startswith(b"[")
    assert b"grader" not in raw.output


def test_a_server_ends_with_its_owner_and_takes_the_script_along(tmp_path):
    marker = f"sleep 6{os.getpid()}"
    script = tmp_path / "train.py"
    script.write_text(
        f"import subprocess\nsubprocess.Popen({marker.split()!r}, start_new_session=True)\nwhile True: pass"
    )
    server = Server(visible="")
    with server:
        server.run(
            Request(script, [DATA], "accuracy", "2xT4", "synthetic:80", Limits(seconds=1)), lambda f: True
        )
        home = server._home
        assert os.path.isdir(home)
    assert not os.path.exists(home)
    deadline = time.monotonic() + 5
    while alive(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(marker) == []
