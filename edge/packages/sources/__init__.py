"""Where packages come from: one module for each kind of source, and the one that reads what the operator typed."""
