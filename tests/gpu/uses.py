"""What is done with an adapter: asked, measured, exported. The run learns one answer by heart, so that it is known."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tests.gpu import runs
from tests.gpu.exact import plain_loss
from tests.gpu.line import TRAINS, Figures, Line, Place, Verdict, off, together, told, within

QUESTION, ANSWER = "What does it say?", "blue red blue red"
LENGTH = 48


def trained(place: Place, model: str = "tiny", steps: int = 60) -> Path:
    """The home of a run that has learned this answer, made once for all lines; as a launch leaves it."""
    whole = place.shared / f"answers-{model}"
    home = whole / "node-0"
    if (home / "logs/runs/run/launch.json").exists():
        return home
    source = place.shared / "answers.jsonl"
    asked = [QUESTION] * 8 + [f"{QUESTION} {n}" for n in range(60)]
    source.write_text("".join(json.dumps({"prompt": one, "completion": ANSWER}) + "\n" for one in asked))
    own = {
        "model": model, "dataset": source, "max_seq_length": LENGTH, "max_steps": steps, "learning_rate": 0.01,
        "lora_r": 16, "eval_fraction": 0.1, "save_every": 100, "proof_every": 100, "micro_batch": 8,
    }  # fmt: skip
    runs.train(whole, {**runs.OPTIONS, **own}, [place.device])
    rows = next(folder for folder in (home / "data/processed").iterdir() if folder.is_dir())
    launch = {"run": "run", "all": {"model": model, "dataset": str(source), "max_seq_length": LENGTH}}
    launch |= {"model": {"folder_name": model}, "rows": rows.name}
    (home / "logs/runs/run/launch.json").write_text(json.dumps(launch))
    return home


def of_run(place: Place, home: Path, words: list[str]) -> dict[str, Any]:
    return runs.command(place, [*words, "--run=run"], {"MOTLEY_HOME": str(home)})


def measure_ask(place: Place) -> Figures:
    words = ["ask", f"--question={QUESTION}", "--answer-tokens=12"]
    (answer,) = of_run(place, trained(place), words)["answers"]
    return {"wanted": ANSWER, "before": answer["before"], "after": answer["after"]}


def judge_ask(values: Figures) -> Verdict:
    learned, new = values["after"].startswith(values["wanted"]), not values["before"].startswith(values["wanted"])
    return together(
        told(learned, "it gives the answer that it was taught", f"it answers {values['after']!r}"),
        told(new, "which it did not before", "and did so before it was taught"),
    )


def measure_eval(place: Place) -> Figures:
    home = trained(place)
    found = of_run(place, home, ["eval", "--questions=0"])
    told = [event["loss"] for event in runs.events_of(home) if event["event"] == "eval"]
    return {"base": found["base"]["loss"], "adapter": found["adapter"]["loss"], "run": told[-1]}


def judge_eval(values: Figures) -> Verdict:
    base, adapter = values["base"], values["adapter"]
    return together(
        (adapter < 0.75 * base, f"held-out loss {base:.3f} before, {adapter:.3f} after"),
        (abs(adapter - values["run"]) < 0.02 * base, f"the run itself said {values['run']:.3f}"),
    )


def measure_export(place: Place, form: str) -> Figures:
    home, out = trained(place), place.folder / form
    of_run(place, home, ["export", form, f"--out={out}"])
    return losses_with(home, out)


def losses_with(home: Path, folder: Path) -> Figures:
    """As any program loads it, and as it was trained; on the CPU in fp32."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from train.models.model_files import model_folder

    def base() -> Any:
        return AutoModelForCausalLM.from_pretrained(model_folder("tiny"), dtype=torch.float32)

    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(turns, tokenize=False)
    tokens = AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]
    merged = (folder / "config.json").exists()
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) if merged else None
    models = {
        "base": base(),
        "exported": loaded or PeftModel.from_pretrained(base(), str(folder)),
        "trained": PeftModel.from_pretrained(base(), str(home / "results/run/adapter")),
    }
    with torch.no_grad():
        return {name: plain_loss(model, tokens) for name, model in models.items()}


def judge_export(values: Figures) -> Verdict:
    base, found = values["base"], values["exported"]
    return together(
        (found < base, f"loss {base:.2f} of the base, {found:.2f} of what was exported"),
        within("off what was trained by", off(found, values["trained"]), 1e-3),
    )


def measure_gguf(place: Place) -> Figures:
    home = trained(place, "smollm2-135m", steps=2)
    out = place.folder / "gguf"
    of_run(place, home, ["export", "gguf", f"--out={out}", "--quant=f16"])
    files = {file.name: file.stat().st_size for file in out.iterdir()}
    begins = next(out.glob("*.gguf")).read_bytes()[:4].decode(errors="replace")
    return {"files": files, "begins": begins}


def judge_gguf(values: Figures) -> Verdict:
    names = " ".join(sorted(values["files"]))
    whole = values["begins"] == "GGUF" and "Modelfile" in names
    return together((whole, f"{names}, {sum(values['files'].values()) / 1e6:.0f} MB"))


def export(form: str, about: str) -> Line:
    return Line(f"export-{form}", about, functools.partial(measure_export, form=form), judge_export)


LINES = (
    Line("ask", "ask: before and after", measure_ask, judge_ask),
    Line("eval", "eval: held-out loss", measure_eval, judge_eval),
    export("adapter", "export adapter: loads with PEFT alone"),
    export("merged", "export merged: loads with transformers alone"),
    Line(
        "export-gguf",
        "export gguf: a file and a Modelfile",
        measure_gguf,
        judge_gguf,
        needs=(*TRAINS, "the gguf converter", "smollm2-135m in the cache"),
        simulated=True,  # its converter knows real vocabularies alone, and their models are too large
    ),
)
