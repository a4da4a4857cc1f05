from torch.utils.data import dataloader  # noqa: F401
