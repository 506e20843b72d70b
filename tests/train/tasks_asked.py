"""Tasks for lm-evaluation-harness from a file, and an adapter that changes what a model answers."""

import json
import random
from pathlib import Path

import torch

from train.models import backends
from train.models.model_files import model_folder

TASKS = {
    "sums": """
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
num_fewshot: 2
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
""",
    "written": """
output_type: generate_until
doc_to_text: "{{q}} Answer:"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["low"], max_gen_toks: 6, do_sample: true, temperature: 1.0}
repeats: 2
metric_list:
  - {metric: chrf, aggregation: chrf, higher_is_better: true}
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}}"
metric_list:
  - {metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}
""",
}
FILES = [f"{name}.yaml" for name in TASKS]
DOCUMENTS = 24
"""Of each: a whole block and a half."""


def write(folder: Path) -> Path:
    draw = random.Random(1)
    with (folder / "sums.jsonl").open("w") as file:
        for number in range(DOCUMENTS):
            a, b = draw.randrange(10), draw.randrange(10)
            choices = [str(a + b), str(a + b + 1), str(abs(a - b) + 20), "a cat " * (number % 5 + 1)]
            line = {"q": f"What is {a} plus {b}?", "choices": choices, "answer": number % 2}
            file.write(json.dumps(line) + "\n")
    for name, text in TASKS.items():
        head = (
            f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files: {{test: sums.jsonl}}\ntest_split: test"
        )
        (folder / f"{name}.yaml").write_text(head + text)
    return folder


def adapter(folder: Path) -> Path:
    """One of chance, for the tiny model."""
    model = backends.get("hf").build(backends.ModelSpec(folder=model_folder("tiny"), seed=1))
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.copy_(torch.randn(weights.shape, generator=drawn) * 0.05)
    model.save_pretrained(folder)
    return folder
