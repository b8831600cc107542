"""The commands of `quiz`: each module adds one to the application it is given."""
