"""The story `make demo` tells: acts, each an honest measurement that can fail."""
