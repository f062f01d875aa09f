"""One record of every request whatever its end, in a chain that shows any later change; never prompt text."""
