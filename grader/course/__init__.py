"""The learner's way through the exercises: finding them, hints, starting over."""
