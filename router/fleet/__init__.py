"""The fleet as this router knows it: reports, capacity polls and its own experience, as one frozen snapshot."""
