"""As much of torch as the hook touches, for machines that have none."""
