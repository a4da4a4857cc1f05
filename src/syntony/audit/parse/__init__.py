"""What foreign programs print, as records. Anything else raises `UnreadableError`, nothing else."""
