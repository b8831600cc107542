"""Simulated GPUs for any project's tests, with pytest.

    pytest --simgpu 2xT4                   # or, in the ini file: simgpu = 2xT4

puts the machine there before anything is collected, so that tests which are skipped where there are fewer
than two GPUs run. One test gets a machine of its own, which is gone after it, by a marker or by a fixture:

    @pytest.mark.simgpu("4xV100")
    def test_four(): ...

    def test_two(simgpu):
        machine = simgpu("2xT4")

Without any of these nothing is imported and nothing is changed.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from .machine import Machine

_session = pytest.StashKey["Session"]()
_marked = pytest.StashKey["Place"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the settings of the ini file."""
    text = "run all tests on simulated GPUs: how many, as 2; how many of which, as 2xV100; or 2xprofile.yaml"
    parser.getgroup("simgpu", "simulated GPUs").addoption("--simgpu", metavar="GPUS", help=text)
    parser.addini("simgpu", f"as --simgpu: {text}", type="string", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the machine of the whole session, before any conftest.py is imported."""
    gpus = early_config.known_args_namespace.simgpu or early_config.getini("simgpu")
    if gpus and _session not in early_config.stash:
        session = early_config.stash[_session] = Session(gpus)
        early_config.add_cleanup(session.end)


def pytest_configure(config: pytest.Config) -> None:
    """Let the marker be known."""
    config.addinivalue_line(
        "markers", 'simgpu(gpus, math=True): run the test on simulated GPUs, as in simgpu("2xT4").'
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which GPUs the tests see."""
    session = config.stash.get(_session, None)
    return None if session is None else f"simulated GPUs: {session.described()}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put the machine there that the test's marker asks for."""
    marker = item.get_closest_marker("simgpu")
    if marker is None:
        return
    item.stash[_marked] = place = Place()
    arguments = None
    with contextlib.suppress(TypeError):
        arguments = inspect.signature(place.put).bind(*marker.args, **marker.kwargs)
    if arguments is None:
        _fail('the marker simgpu takes GPUs, and math if need be: @pytest.mark.simgpu("2xT4", math=False)')
    place.put(*arguments.args, **arguments.kwargs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Take away the machine of the test's marker, after all that used it."""
    try:
        return (yield)
    finally:
        place = item.stash.get(_marked, None)
        if place is not None:
            place.clear()


@pytest.fixture
def simgpu() -> Iterator[Callable[..., Machine]]:
    """`simgpu("2xT4", math=True)` puts simulated GPUs there until the test ends, and returns the machine.

    A second call replaces the first machine. Whatever machine there was before the test is back after it.
    """
    place = Place()
    try:
        yield place.put
    finally:
        place.clear()


class Session:
    """The machine that all tests see."""

    def __init__(self, gpus: str) -> None:
        self._machine: Machine | None = None
        self._name, self._mine = "", False
        machine = _machine(gpus, True, _refuse)
        from . import visible
        from .machine import installed

        there = installed()
        if there is not None:  # in a process that a simulated one started, as the workers of pytest-xdist
            self._machine = there
            return
        self._name, self._mine = machine.profile.name, True
        said = visible.hide(None, None, lambda said: None)
        numbers = visible.numbers(said, machine.count)
        if numbers:
            machine.restrict(numbers)
            try:
                machine.install()
            except BaseException:
                visible.show()
                raise
            self._machine = machine

    def described(self) -> str:
        """How many of which, as the header shows it."""
        if self._machine is None:
            return f"none, CUDA_VISIBLE_DEVICES leaves no {self._name}"
        return f"{self._machine.count} x {self._machine.profile.name}"

    def end(self) -> None:
        """Undo everything."""
        if self._mine:
            from . import visible

            if self._machine is not None:
                self._machine.uninstall()
            visible.show()


class Place:
    """Where a test's machine is put: in the place of the one that is there, which comes back."""

    def __init__(self) -> None:
        self._before: Machine | None = None
        self._own: Machine | None = None

    def put(self, gpus: str, math: bool = True) -> Machine:
        """Install a machine. Fails the test where there is none of that name."""
        machine = _machine(gpus, math, _fail)
        from .machine import installed

        if self._own is not None:
            self._own.uninstall()
        else:
            self._before = installed()
            if self._before is not None:
                self._before.uninstall()
        machine.install()
        self._own = machine
        return machine

    def clear(self) -> None:
        """Take the machine away and put the one before back."""
        if self._own is not None:
            self._own.uninstall()
            if self._before is not None:
                self._before.install()
        self._own = self._before = None


def _machine(gpus: str, math: bool, refuse: Callable[[str], NoReturn]) -> Machine:
    """Make a machine; what is wrong with the specification is told to `refuse`."""
    from .profiles import BadProfile
    from .specification import full

    spec = fault = ""
    try:
        spec = full(str(gpus))
    except BadProfile as problem:
        fault = str(problem)
    if fault:  # told after the handling, so that nothing of it is shown
        refuse(f"simgpu: {fault}")
    from . import Machine

    return Machine(spec, math)


def _refuse(text: str) -> NoReturn:
    raise pytest.UsageError(text)


def _fail(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)
