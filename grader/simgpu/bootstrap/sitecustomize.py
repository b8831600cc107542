"""Found by every Python that starts with this folder on PYTHONPATH: lets it see the simulated machine.

Runs before the program, and leaves neither this folder on sys.path nor the name `sitecustomize` taken.
"""

import importlib
import os
import sys


def _next_of_this_name() -> None:
    """Let the sitecustomize that this one hides run, as if it had been found."""
    this = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)  # the import system looks it up once more


def _process():  # type: ignore[no-untyped-def]
    root = os.path.abspath(os.path.join(_here, *[os.pardir] * 3))
    sys.path.insert(0, root)
    try:
        from grader.simgpu import process
    finally:
        sys.path.remove(root)
    return process


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _here]
if os.environ.get("SIMGPU"):
    _process().start()
_next_of_this_name()
