"""The word that somebody meant who typed one that is not there: another name of it, or the nearest in spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LIKE = 0.75
"""How much two words have in common at least: `foo` is not `follow`. No suggestion is better than a wrong one."""
OTHER_NAMES = {
    # launch variables, as other trainers call them
    "learning_rate": "lr rate",
    "rows_per_step": "batch batch_size bs global_batch_size train_batch_size",
    "micro_batch": "micro_batch_size per_device_batch_size per_device_train_batch_size",
    "max_seq_length": "seq_len seq_length max_length max_seq_len context block_size",
    "lora_r": "rank r lora_rank",
    "lora_alpha": "alpha",
    "lora_targets": "target_modules lora_target_modules",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "lora_init": "init_lora_weights pissa olora",
    "loraplus_lr_ratio": "loraplus lora_plus",
    "neftune_alpha": "neftune neftune_noise_alpha",
    "load_in": "bits quantize quantization load_in_4bit",
    "epochs": "num_epochs num_train_epochs passes",
    "steps": "max_steps iters max_iters iterations",
    "max_steps": "steps iters max_iters iterations",
    "schedule": "scheduler lr_scheduler lr_scheduler_type",
    "warmup_steps": "warmup",
    "grad_clip": "clip max_grad_norm",
    "save_every": "save_steps checkpoint_every",
    "eval_every": "eval_steps",
    "eval_fraction": "val_fraction val_split test_size",
    "keep": "save_total_limit",
    "patience": "early_stopping",
    "precision": "dtype fp16 bf16",
    "weights": "offload",
    "dataset": "data data_set file",
    "model": "base_model model_name",
    "run": "name run_name output",
    "nodes": "hosts machines",
    "resume": "continue resume_from_checkpoint",
    # other options
    "to": "format type",
    "tokens": "max_tokens max_new_tokens length",
    "question": "prompt",
    "lines": "tail n",
    "yes": "y force assume_yes",
    "check": "dry_run diff validate lint",
    "fix": "repair",
    # verbs
    "demo": "try example quickstart",
    "inventory": "init new config configure describe",
    "bootstrap": "up setup install provision deploy prepare",
    "plan": "estimate fit memory",
    "launch": "train finetune fine_tune start",
    "status": "ps info show state",
    "follow": "watch attach",
    "dashboard": "ui web gui",
    "stop": "kill cancel down",
    "unpause": "continue",
    "runs": "ls list history",
    "ask": "chat generate infer predict",
    "eval": "evaluate test",
    "fetch": "download pull get",
    "export": "convert gguf merge ollama",
    "clean": "prune gc rm delete",
    "doctor": "diagnose health verify fix",
    "undo": "remove uninstall revert rollback reset",
    "give_back": "return release",
}


def meant(word: str, known: Iterable[str]) -> str:
    """The known word, as it is written there; empty where none is near. Dashes, case and a leading -- do not count."""
    plain: dict[str, str] = {}
    for name in known:
        plain.setdefault(bare(name), name)
    typed = bare(word)
    for name, others in OTHER_NAMES.items():
        if name in plain and typed in others.split():
            return plain[name]
    slips = [name for name in plain if slipped(typed, name)]
    close = slips or difflib.get_close_matches(typed, list(plain), n=1, cutoff=LIKE)
    return plain[close[0]] if close else ""


def models_meant(word: str, known: Iterable[str]) -> str:
    """All models whose names begin so, however they are written: llama-3.2-1b-instruct is llama3.2-1b."""
    typed = _letters(word)
    return ", ".join(name for name in known if typed and _letters(name).startswith(typed))


def _letters(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.rpartition("/")[2].lower())
    return "".join(word for word in words if word not in ("instruct", "chat", "it", "hf"))


def slipped(typed: str, name: str) -> bool:
    """One letter is another, too many or missing, or two are turned: short words are not LIKE each other then."""
    if len(typed) == len(name) > 2:
        return sum(a != b for a, b in zip(typed, name, strict=True)) == 1 or sorted(typed) == sorted(name)
    short, long = sorted((typed, name), key=len)
    return len(typed) > 1 and short in [long[:at] + long[at + 1 :] for at in range(len(long))]


def bare(word: str) -> str:
    return word.lstrip("-").lower().replace("-", "_")
