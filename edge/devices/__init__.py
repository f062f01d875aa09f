"""L3: what this device has: cores, instruction sets, memory, power, and the libraries that the engine needs."""
