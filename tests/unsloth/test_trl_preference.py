"""The losses of recipe=preference against those of TRL on the same rows: TRL comes with unsloth's environment."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

from tests.train import preferred
from tests.unsloth.against_trl import assert_alike, base, learned
from train.models.model_files import model_folder
from train.plan.settings.read_settings import PreferenceConfig
from train.recipes.answers_as_rows import Compared
from train.recipes.preference import losses as preference
from train.recipes.preference import reward_head
from train.recipes.preference.rows import open_pairs

ROWS = list(range(8))


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    folders = {paired: preferred.make_data(tmp_path_factory.mktemp("data"), paired=paired) for paired in (True, False)}
    return lambda paired: open_pairs(folders[paired], "train", paired=paired)


def ours(model, rows, config):
    """As a step of the product computes it."""
    base = np.zeros((len(ROWS), 2))
    with model.disable_adapter():
        for which in (0, 1):
            base[:, which] = said(model, rows, which)
    kl = 0.0 if config.paired else max(0.0, float(np.mean(said(model, rows, 1) - base[:, 1])))
    compared = Compared(config=config, rows=rows, of=ROWS, base_log_p=base, kl=kl)
    loss = preference.Loss(
        name=config.loss,
        beta=config.beta,
        label_smoothing=config.label_smoothing,
        gamma=config.simpo_gamma,
        centre=config.center_rewards_coefficient,
    )
    parts = [preference.measured(loss, model, tensors(compared.batch(some))) for some in (ROWS[:5], ROWS[5:])]
    return sum(part[0] for part in parts) / len(ROWS)


def said(model, rows, which):
    return preference.of_answers(model, tensors(rows.filled(rows.sequences(ROWS, which)))).numpy()


def tensors(batch):
    return {name: torch.as_tensor(column) for name, column in batch.items()}


def padded(rows, which):
    """Of the first or second sequences: tokens, mask, and the mask of their answers."""
    found = rows.sequences(ROWS, which)
    longest = max(len(tokens) for tokens, _ in found)
    ids = [[*map(int, tokens), *[0] * (longest - len(tokens))] for tokens, _ in found]
    mask = [[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens, _ in found]
    answer = [[*map(int, own), *[0] * (longest - len(own))] for _, own in found]
    return tuple(map(torch.tensor, (ids, mask, answer)))


def joined(rows):
    """The first sequences, and the second ones below them."""
    both = [padded(rows, which) for which in (0, 1)]
    longest = max(ids.shape[1] for ids, _, _ in both)
    parts_of = zip(*both, strict=True)
    return [torch.cat([F.pad(part, (0, longest - part.shape[1])) for part in parts]) for parts in parts_of]


class Outputs(torch.nn.Module):
    """The model, with what TRL's fused head gives beside the scores."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels=None, fused_lm_head=False, use_cache=False):
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache).logits
        if not fused_lm_head:
            return SimpleNamespace(logits=logits)
        wanted = labels[:, 1:]
        every = logits[:, :-1].log_softmax(-1)
        log_p = every.gather(-1, wanted.clamp(min=0)[..., None])[..., 0] * (wanted != -100)
        nothing = torch.zeros_like(log_p)
        return SimpleNamespace(
            log_probs=log_p, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool(), log_sum_sq_probs=nothing
        )


@torch.no_grad()
def said_by_base(model, ids, mask, answer):
    with model.disable_adapter():
        return Outputs(model)(ids, mask, ids.masked_fill(answer == 0, -100), fused_lm_head=True).log_probs.sum(1)


ACCELERATOR = SimpleNamespace(
    device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x, unwrap_model=lambda model: model
)


def trainer(kind, model, config, **more):
    """Of theirs all but the set-up."""
    made = kind.__new__(kind)
    vars(made).update(
        model=model, ref_model=None, accelerator=ACCELERATOR, beta=config.beta, aux_loss_enabled=False, _tp_size=1,
        label_smoothing=config.label_smoothing, _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0,
        precompute_ref_logps=True, is_encoder_decoder=False, padding_value=0, pad_token_id=0,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None), **more,
    )  # fmt: skip
    return made


def theirs_dpo(model, rows, config):
    from trl.trainer.dpo_trainer import DPOTrainer  # noqa: PLC0415  takes seconds

    made = trainer(
        DPOTrainer, Outputs(model), config, loss_types=[{"dpo": "sigmoid"}.get(config.loss, config.loss)],
        loss_weights=[1.0], ld_alpha=None, f_divergence_type="reverse_kl", use_weighting=False,
    )  # fmt: skip
    ids, mask, answer = joined(rows)
    chosen, rejected = said_by_base(model, ids, mask, answer).chunk(2)
    given = {"input_ids": ids, "attention_mask": mask, "completion_mask": answer}
    given |= {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
    return DPOTrainer._compute_loss(made, made.model, given, return_outputs=False)


def theirs_kto(model, rows, config):
    from trl.trainer.kto_trainer import KTOTrainer  # noqa: PLC0415  takes seconds

    made = trainer(
        KTOTrainer, Outputs(model), config, loss_type="kto", calculate_KL=True, desirable_weight=1.0,
        undesirable_weight=1.0,
    )  # fmt: skip
    names, own, other = ("input_ids", "attention_mask", "completion_mask"), padded(rows, 0), padded(rows, 1)
    given = dict(zip(names, own, strict=True)) | {f"KL_{n}": part for n, part in zip(names, other, strict=True)}
    given |= {"ref_logps": said_by_base(model, *own), "ref_KL_logps": said_by_base(model, *other)}
    given |= {"label": torch.tensor(rows.labels[ROWS].astype(bool))}
    return KTOTrainer._compute_loss(made, made.model, given, return_outputs=False)


def theirs_reward(model, rows, config):
    """The trainer's own loss over transformers' own class, with the same weights by name."""
    from trl.trainer.reward_trainer import RewardTrainer  # noqa: PLC0415  takes seconds

    scoring = as_classifier(model)
    ids, mask, _ = joined(rows)
    made = trainer(RewardTrainer, scoring, config)
    made.args.center_rewards_coefficient = config.center_rewards_coefficient or None
    return RewardTrainer.compute_loss(made, scoring, {"input_ids": ids, "attention_mask": mask})


def as_classifier(model):
    """What trains of it are the model's own weights: both have one gradient."""
    found = AutoModelForSequenceClassification.from_pretrained(model_folder("tiny"), num_labels=1, dtype=torch.float32)
    own = model.get_base_model()
    found.model, found.score = own.model, own.score
    return found


def theirs_concatenated(kind, model, rows, config, **more):
    """ORPO's and CPO's trainers put both answers together themselves."""
    made = trainer(kind, model, config, **more)
    given = {}
    for name, which in (("chosen", 0), ("rejected", 1)):
        ids, mask, answer = padded(rows, which)
        given |= {f"{name}_input_ids": ids, f"{name}_attention_mask": mask}
        given |= {f"{name}_labels": ids.masked_fill(answer == 0, -100)}
    return kind.get_batch_loss_metrics(made, model, given)[0]


def theirs(model, rows, config):
    if config.loss == "orpo":
        from trl.experimental.orpo import ORPOTrainer  # noqa: PLC0415  takes seconds

        return theirs_concatenated(ORPOTrainer, model, rows, config)
    if config.loss == "simpo":
        from trl.experimental.cpo import CPOTrainer  # noqa: PLC0415  takes seconds

        own = {"loss_type": "simpo", "simpo_gamma": config.simpo_gamma, "cpo_alpha": 0.0, "alpha": 0.0}
        return theirs_concatenated(CPOTrainer, model, rows, config, **own)
    if config.scores:
        return theirs_reward(model, rows, config)
    return (theirs_dpo if config.paired else theirs_kto)(model, rows, config)


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        ("dpo", {}), ("hinge", {}), ("ipo", {}), ("orpo", {}), ("simpo", {}),
        ("simpo", {"label_smoothing": 0.1, "simpo_gamma": 0.3}), ("kto", {}), ("kto", {"beta": 0.5}),
        ("reward", {}), ("reward", {"center_rewards_coefficient": 0.01}),
    ],
)  # fmt: skip
def test_loss_and_gradient_are_those_of_trl(loss, more, rows_of):
    config = PreferenceConfig(model="tiny", dataset="x", loss=loss, **more)
    rows, model = rows_of(config.paired), base()
    if config.scores:
        reward_head.add(model, 7, "cpu")
    assert_alike(learned(model), lambda model: ours(model, rows, config), lambda model: theirs(model, rows, config))
