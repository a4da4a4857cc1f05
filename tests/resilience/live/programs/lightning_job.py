"""A training program with Lightning that knows nothing of Syntony.

Each rank writes a line for each batch; at the end a hash of all that it has learnt and logged; and,
all along, what it is doing. It waits for the file `hold` to go (as in `bench.resilience_job`).
"""

import argparse
import hashlib
import importlib
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--package", default="pytorch_lightning")
parser.add_argument("--pause-ms", type=float, default=0.0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batches", type=int, default=40)
given = parser.parse_args()
if given.package == "pytorch_lightning":
    import pytorch_lightning as pl
else:
    import lightning.pytorch as pl
callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
CSVLogger = importlib.import_module(f"{pl.__name__}.loggers").CSVLogger
WIDTH, CLASSES = 16, 4


class Points(Dataset):  # type: ignore[misc]
    """Noise is drawn anew at each reading, from three generators."""

    def __init__(self, count: int) -> None:
        own = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, WIDTH, generator=own)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> Any:
        x = self.x[at]
        noise = 0.05 * torch.randn_like(x) + 0.01 * random.random()
        return x + noise + 0.01 * float(np.random.rand()), int(x[:CLASSES].argmax())  # noqa: NPY002


class Model(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, phase: Any, file: Any) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(32, CLASSES),
        )  # fmt: skip
        self.accuracy = torchmetrics.MeanMetric()
        self.losses: list[float] = []
        self.phase, self.file = phase, file

    def training_step(self, batch: Any, number: int) -> Any:
        self.phase[0] = 2
        time.sleep(given.pause_ms / 1e3)
        done = self.current_epoch * given.batches + number
        while 4 * done > 3 * given.epochs * given.batches and (given.out / "hold").exists():
            time.sleep(0.02)
        x, y = batch
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        self.accuracy((out.argmax(1) == y).float())
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("accuracy", self.accuracy, on_step=False, on_epoch=True)
        self.losses.append(loss.item())
        self.phase[0] = 3
        return loss

    def on_before_optimizer_step(self, *_: Any) -> None:
        self.phase[0] = 4

    def on_train_batch_end(self, out: Any, batch: Any, number: int) -> None:
        self.phase[0] = 5
        rate = self.optimizers().param_groups[0]["lr"]
        done = self.current_epoch * given.batches + number
        values = f"{self.global_step} {self.losses[-1]!r} {len(self.losses)} {rate!r}"
        self.file.write(f"{time.monotonic_ns()} {done} {values}\n")

    def validation_step(self, batch: Any, number: int) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.7)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
        }


def main() -> None:
    torch.set_num_threads(1)
    pl.seed_everything(5, verbose=False)
    best = callbacks.ModelCheckpoint(given.out / "checkpoints", monitor="val_loss", save_top_k=2)
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp",
        max_epochs=given.epochs, accumulate_grad_batches=2, gradient_clip_val=1.0,
        enable_progress_bar=False, enable_model_summary=False, val_check_interval=0.5,
        log_every_n_steps=5,
        logger=CSVLogger(given.out / "logs"),
        callbacks=[best, callbacks.EarlyStopping("val_loss", patience=20),
                   callbacks.LearningRateMonitor()],
    )  # fmt: skip
    rank, world = trainer.global_rank, trainer.world_size
    mark = given.out / f"phase{rank}"
    mark.write_bytes(b"\0")
    phase = np.memmap(mark, dtype=np.uint8, mode="r+", shape=(1,))
    with (given.out / f"r{rank}.log").open("a", buffering=1) as file:
        model = Model(phase, file)
        loaders = [
            DataLoader(Points(count), 8, shuffle=shuffle, num_workers=given.workers)
            for count, shuffle in ((given.batches * 8 * world, True), (64, False))
        ]
        trainer.fit(model, *loaders)
    state = hashlib.sha256(repr((torch.get_rng_state().sum(), random.random())).encode())
    for each in [*model.parameters(), *model.buffers()]:
        state.update(each.detach().numpy().tobytes())
    for kept in trainer.optimizers[0].state.values():
        for value in kept.values():
            state.update(torch.as_tensor(value).numpy().tobytes())
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    said = metrics, model.losses, best.best_model_score.item()
    state.update(repr(said).encode())
    (given.out / f"sha{rank}").write_text(state.hexdigest())
    (given.out / f"said{rank}").write_text(repr(said))


if __name__ == "__main__":
    main()
