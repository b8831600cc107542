"""Auto-graded exercises in multi-GPU training, on real or on simulated GPUs."""

__version__ = "0.1.0"
