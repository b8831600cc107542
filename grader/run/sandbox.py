"""How a learner's process is kept apart: namespaces where the host has them, limits everywhere.

With util-linux (`unshare`, `mount`, `setpriv`) and, for ordinary users, unprivileged user namespaces, the
run server is the first process of a PID namespace of its own: nothing in it can see or signal a process
outside, its end is the end of everything it started, and folders that are none of its business, such as the
cache of the baseline's evidence, are empty for it. Without them the server is at least another process
group than the grader, and what it leaves behind is found through /proc.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                     "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "LD_LIBRARY_PATH",
                     "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SYSTEMROOT")  # fmt: skip

_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
_AS_ORDINARY_USER = ("--user", "--map-root-user")
# Covers the folders before "--" with empty ones, gives up every privilege (so that they stay covered), and
# becomes the command after it.
_COVER = (
    'while [ "$1" != -- ]; do mount -t tmpfs -o size=64k,mode=0755 none "$1" || exit 97; shift; done; shift; '
    'exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@"'
)
NOT_ISOLATED = (
    "This host gives the script no namespaces of its own (util-linux' unshare and setpriv, unprivileged user "
    "namespaces): it can signal the processes of the user who grades, and write to their files."
)


@functools.cache
def isolation() -> tuple[str, ...]:
    """Return the command that gives what follows it namespaces of its own, or nothing; see `shut_off`."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return ()
    commands: list[tuple[str, ...]] = [(*_UNSHARE, *_AS_ORDINARY_USER)]
    if os.getuid() == 0:
        commands.insert(0, _UNSHARE)
    return next((command for command in commands if _works(command)), ())


def _works(command: tuple[str, ...]) -> bool:
    try:
        with tempfile.TemporaryDirectory() as folder:
            tried = _covering(command, [Path(folder)], ["true"])
            return subprocess.run(tried, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _covering(command: tuple[str, ...], covered: list[Path], program: list[str]) -> list[str]:
    return [*command, "sh", "-c", _COVER, "sh", *map(str, covered), "--", *program]


def shut_off(program: list[str], covered: list[Path]) -> list[str]:
    """Return the command that runs `program` isolated, with existing folders covered, where the host can."""
    command = isolation()
    return _covering(command, [path for path in covered if path.is_dir()], program) if command else program


def environment(visible: str | None, home: str) -> dict[str, str]:
    """The variables a learner's process gets: an allow-list, and the real GPUs that are `visible`."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    kept |= {"HOME": home, "TMPDIR": home, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
    kept["THP_MEM_ALLOC_ENABLE"] = "1"  # huge pages: fewer faults where a step allocates anew each time
    if visible is not None:
        kept["CUDA_VISIBLE_DEVICES"] = visible
    return kept


def end_with_parent() -> None:
    """Have this process killed when the one that forked it dies (PR_SET_PDEATHSIG, prctl(2))."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def sweep(home: str) -> None:
    """Kill what was started with `home` in its environment and outlived its run server.

    Only needed without a process namespace, which takes everything in it along.
    """
    mark = os.fsencode(home)
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def limit_memory(gigabytes: float, untouched_bytes: int = 0) -> None:
    """Cap this process's writable memory (Linux counts private mappings into RLIMIT_DATA).

    `untouched_bytes` may be mapped in addition.
    """
    import resource

    with open("/proc/self/status") as status:
        held = next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:")), 0)
    cap = held + int(gigabytes * 1e9) + untouched_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
