"""A training program with Hugging Face's Trainer that knows nothing of Syntony.

Each rank writes what its Trainer logs, in full; at the end a hash of all that it has learnt; and,
all along, what it is doing. It waits for the file `hold` to go (as in `bench.resilience_job`).
"""

import argparse
import hashlib
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    EarlyStoppingCallback,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

VOCABULARY, LENGTH = 48, 12


class Sequences(Dataset):  # type: ignore[misc]
    """Counting with errors, which are drawn anew at each reading."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> dict[str, Any]:
        tokens = (torch.arange(LENGTH) * (1 + at % 3) + at) % VOCABULARY
        tokens[int(torch.randint(LENGTH, ()))] = random.randrange(VOCABULARY)
        tokens[int(np.random.randint(LENGTH))] = 1  # noqa: NPY002
        return {"input_ids": tokens, "labels": tokens.clone()}


class Model(LlamaForCausalLM):  # type: ignore[misc]
    """With a pause, to be killed in."""

    pause_s = 0.0
    phase: Any = None

    def forward(self, input_ids: Any = None, labels: Any = None, **rest: Any) -> Any:
        self.phase[0] = 2
        time.sleep(self.pause_s)
        found = super().forward(input_ids, labels=labels, **rest)
        self.phase[0] = 3
        return found


class Log(TrainerCallback):  # type: ignore[misc]
    """Writes what is logged; counts."""

    def __init__(self, file: Any, phase: Any, held: Path) -> None:
        self.file, self.phase, self.seen, self.held = file, phase, 0, held

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seen += 1
        while 4 * state.global_step > 3 * state.max_steps and self.held.exists():
            time.sleep(0.02)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.phase[0] = 4

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.phase[0] = 5

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        kept = {k: v for k, v in logs.items() if not k.endswith(("_runtime", "_second"))}
        number = state.global_step + (100_000 if "eval_loss" in kept else 0)
        number += 200_000 if "train_loss" in kept else 0
        values = [f"{key}={kept[key]!r}" for key in sorted(kept)]
        self.file.write(f"{time.monotonic_ns()} {number} {self.seen} {' '.join(values)}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(3)
    arguments = TrainingArguments(
        output_dir=str(given.out / "checkpoints"), use_cpu=True, report_to=[], seed=3,
        per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=given.epochs,
        learning_rate=3e-3, lr_scheduler_type="cosine", warmup_steps=5, max_grad_norm=1.0,
        logging_steps=1, eval_strategy="steps", eval_steps=10, save_steps=10, save_total_limit=2,
        load_best_model_at_end=True, metric_for_best_model="eval_loss", disable_tqdm=True,
        dataloader_num_workers=given.workers,
    )  # fmt: skip
    rank, world = arguments.process_index, arguments.world_size
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, attention_dropout=0.1, pad_token_id=0,
    )  # fmt: skip
    model = Model(config)
    model.pause_s = given.pause_ms / 1e3
    mark = given.out / f"phase{rank}"
    mark.write_bytes(b"\0")
    model.phase = np.memmap(mark, dtype=np.uint8, mode="r+", shape=(1,))
    with (given.out / f"r{rank}.log").open("a", buffering=1) as file:
        trainer = Trainer(
            model=model, args=arguments, train_dataset=Sequences(given.batches * 4 * world),
            eval_dataset=Sequences(24), callbacks=[
                Log(file, model.phase, given.out / "hold"),
                EarlyStoppingCallback(early_stopping_patience=50),
            ],
        )  # fmt: skip
        trainer.train()
    state = hashlib.sha256(repr((torch.get_rng_state().sum(), random.random())).encode())
    for each in model.parameters():
        state.update(each.detach().numpy().tobytes())
    for kept in trainer.optimizer.state.values():
        for value in kept.values():
            state.update(torch.as_tensor(value).numpy().tobytes())
    history = [{k: v for k, v in e.items() if not k.endswith(("_runtime", "_second"))}
               for e in trainer.state.log_history]  # fmt: skip
    state.update(repr((history, trainer.state.best_metric)).encode())
    (given.out / f"sha{rank}").write_text(state.hexdigest())


if __name__ == "__main__":
    main()
