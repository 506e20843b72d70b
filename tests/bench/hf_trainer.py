"""The peer: transformers' own Trainer under torchrun, which shares the rows evenly. The same model, rows, adapter,
optimizer and rows per step as `train run`; writes when each step ended.

    torchrun … -m tests.bench.hf_trainer MODEL DATA OUT ROWS_PER_STEP STEPS MICRO_BATCH
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from train.data.rows import open_rows
from train.models.model_files import model_folder

FIELDS = ("input_ids", "labels", "position_ids")


class Data(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, folder: str) -> None:
        self.rows = open_rows(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, indices: list[int]) -> dict[str, torch.Tensor]:
        batch = self.rows.batch(indices)
        return {name: torch.from_numpy(batch[name]) for name in FIELDS}


class Diary(TrainerCallback):  # type: ignore[misc]
    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file, self.since = file.open("w"), 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.since = self.since or time.time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = time.time()
        self.file.write(json.dumps({"event": "step", "step": state.global_step, "step_s": now - self.since}) + "\n")
        self.file.flush()
        self.since = now


def main(model: str, data: str, out: str, *numbers: str) -> None:
    rows_per_step, steps, micro_batch = map(int, numbers)
    rows = Data(data)
    each = rows_per_step // int(os.environ["WORLD_SIZE"])
    settings = TrainingArguments(
        output_dir="/tmp/hf-trainer",
        max_steps=steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=each // micro_batch,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_steps=min(5, steps // 10),
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        remove_unused_columns=False,
        seed=3407,
    )
    base = AutoModelForCausalLM.from_pretrained(model_folder(model), dtype=torch.float32)
    lora = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    callbacks = [Diary(Path(out))] if os.environ["RANK"] == "0" else []
    trainer = Trainer(
        get_peft_model(base, lora), settings, data_collator=rows.collate, train_dataset=rows, callbacks=callbacks
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
