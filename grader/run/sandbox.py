"""How a learner's process is kept apart: namespaces where the host has them, limits everywhere.

With util-linux' `unshare` (or bubblewrap) and unprivileged user namespaces, the run server is the
first process of a PID namespace of its own: nothing in it can see or signal a process outside, and
its end is the end of everything it started. Without them the server is at least another process
group than the grader, and what it leaves behind is found through /proc.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                     "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "LD_LIBRARY_PATH",
                     "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SYSTEMROOT")  # fmt: skip

_UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]


@functools.cache
def isolation() -> tuple[str, ...]:
    """Return the command that gives what follows it a PID namespace of its own, or nothing."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return ()
    command = list(_UNSHARE)
    if os.getuid() == 0:
        command = [part for part in command if part not in ("--user", "--map-root-user")]
    try:
        probe = subprocess.run([*command, "true"], capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(command) if probe.returncode == 0 else ()


def environment(visible: str | None, home: str) -> dict[str, str]:
    """The variables a learner's process gets: an allow-list, and the real GPUs that are `visible`."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    kept |= {"HOME": home, "TMPDIR": home, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
    kept["THP_MEM_ALLOC_ENABLE"] = "1"  # huge pages: fewer faults where a step allocates anew each time
    if visible is not None:
        kept["CUDA_VISIBLE_DEVICES"] = visible
    return kept


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
