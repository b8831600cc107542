"""Scripts that tests run in several processes, one for each rank: `python -m tests.simgpu.ranks.<name>`."""
