"""Programs that the tests run with `simgpu run`, and how they do it."""
