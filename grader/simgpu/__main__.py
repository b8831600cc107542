"""`python -m grader.simgpu` is the command `simgpu`."""

from .command import main

main()
