"""Proofs of keys: what a question's code does on simulated GPUs, compared with what the quiz claims."""
