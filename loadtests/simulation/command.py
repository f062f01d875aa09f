"""`isthmus loadtest simulate`: placeholder while the simulator is written."""


def simulate() -> None:
    """x"""
