"""Rewards for questions: the right name, in few words."""

FEW = 3


def right(completions, answer, **columns):
    """1 where the name that was asked for is in the answer."""
    return [float(name.lower() in text_of(text).lower()) for text, name in zip(completions, answer, strict=True)]


def brief(completions, **columns):
    """1 up to three words, then less with each word more; nothing for an empty answer."""
    counts = [len(text_of(text).split()) for text in completions]
    return [min(1.0, FEW / count) if count else 0.0 for count in counts]


def text_of(completion):
    """A chat's completion is a list of one message."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
