"""Which settings are tried next, and whether a trial is worth its next steps: Optuna decides both.

No storage file and no server: what happened is in the record of pieces, which every machine has. From it, a study in
memory is played again through Optuna's own calls, in the order of the trials' numbers; so any machine comes to the same
proposal from the same record and seed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from train.plan.settings.ranges import Range, Searched
from train.plan.settings.sweep import LOOKS, Sweep
from train.plan.values import Settings
from train.runlog.trials import Trial

if TYPE_CHECKING:
    import optuna

FIRST_LOOK, KEEP_ONE_OF = 2, 3
"""A trial is first compared after a quarter of its steps; of those that got so far one of three continues."""
TRIES = 50
"""Proposals for one trial: some do not fit this machine, do not go together, or were tried."""
LEAST_RANDOM, RANDOM_FIRST = 3, 10
"""Trials before the sampler learns from them: a third of all, within these."""


def next_trial(
    config: Sweep, trials: Mapping[int, Trial], fits: Callable[[Settings], bool]
) -> tuple[int, Settings] | None:
    """The number of a trial that nobody has, and its settings; None where none is left that `fits` takes."""
    if planned := config.planned:
        tried = [dict(one.params) for one in trials.values()]
        left = {number: one for number, one in enumerate(planned, 1) if one not in tried}
        place = next((number for number, one in left.items() if fits(one)), None)
        if place is None:
            return None
        free = (number for number in itertools.count(1) if number not in trials and number not in left)
        return (next(free) if place in trials else place), left[place]
    number = next((one for one in range(1, config.trials + 1) if one not in trials), None)
    if number is None:
        return None
    tried, again = [dict(one.params) for one in trials.values()], None
    for chosen in drawn(config, trials.values(), number):
        if not (config.goes(chosen) and fits(chosen)):
            continue
        if chosen not in tried:
            return number, chosen
        again = again or chosen
    return (number, again) if again else None


def drawn(config: Sweep, trials: Iterable[Trial], number: int) -> Iterator[Settings]:
    """Proposals for one trial; those before the last count as running, so the next one is elsewhere."""
    import optuna

    study = study_of(config, trials)
    first = min(RANDOM_FIRST, max(LEAST_RANDOM, config.trials // 3))
    with quietly():
        study.sampler = optuna.samplers.TPESampler(
            seed=config.seed + number, n_startup_trials=first, constant_liar=True
        )
    for _ in range(TRIES):
        with quietly():
            params = study.ask(distributions(config.searched)).params
        yield {
            one.name: one.near(params[one.name]) if isinstance(one, Range) else params[one.name]
            for one in config.searched
        }


def is_behind(config: Sweep, trials: Mapping[int, Trial], number: int) -> bool:
    """Whether this running trial is to end early, by its newest held-out loss and what the others had so far."""
    if config.prune == "off" or not looks(trials[number]):
        return False
    return bool(played(config, trials.values(), last=number)[1])


def study_of(config: Sweep, trials: Iterable[Trial]) -> optuna.Study:
    return played(config, trials)[0]


def played(config: Sweep, trials: Iterable[Trial], last: int = 0) -> tuple[optuna.Study, bool]:
    """The study, and whether its pruner would end trial `last` at its newest look, which is told after all others'."""
    import optuna

    known = sorted(trials, key=lambda one: one.number)
    held_back: list[tuple[optuna.Trial, int, float]] = []
    with quietly():
        study = optuna.create_study(
            study_name=config.run, sampler=optuna.samplers.RandomSampler(seed=config.seed), pruner=pruner(config)
        )
        for one in known:
            study.enqueue_trial(dict(one.params))
            trial = study.ask(distributions(config.searched))
            for look, loss in looks(one):
                if one.number == last and look == looks(one)[-1][0]:
                    held_back.append((trial, look, loss))
                    continue
                trial.report(loss, look)
                trial.should_prune()  # which notes how far it came, for those that it is compared with
            if one.state == "done" and one.loss is not None:
                study.tell(trial, one.loss)
            elif one.state != "running":  # ended early, or failed: what has no loss at all counts as the worst
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        for trial, look, loss in held_back:
            trial.report(loss, look)
            return study, trial.should_prune()
    return study, False


def looks(trial: Trial) -> list[tuple[int, float]]:
    """Its held-out losses by how much of its steps is done, in eighths: trials may have more or fewer steps."""
    if not trial.total:
        return []
    by_look = {max(1, LOOKS * step // trial.total): loss for step, loss in trial.losses if step}
    return sorted(by_look.items())


def pruner(config: Sweep) -> optuna.pruners.BasePruner:
    import optuna

    if config.prune == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=FIRST_LOOK, reduction_factor=KEEP_ONE_OF)
    if config.prune == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=LOOKS, reduction_factor=KEEP_ONE_OF)
    return optuna.pruners.NopPruner()


def distributions(searched: Iterable[Searched]) -> dict[str, optuna.distributions.BaseDistribution]:
    return {one.name: distribution(one) for one in searched}


def distribution(one: Searched) -> optuna.distributions.BaseDistribution:
    from optuna import distributions as kinds

    if not isinstance(one, Range):
        return kinds.CategoricalDistribution(one.values)
    if one.whole:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
    return kinds.FloatDistribution(one.low, one.high, log=one.log)


@contextmanager
def quietly() -> Iterator[None]:
    """Without Optuna's own lines, and its warnings that something is experimental."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
