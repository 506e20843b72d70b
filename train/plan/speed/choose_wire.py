"""Whether gradients travel in 32 bit or are compressed to 16: the one rule, for the plan's estimate and the run's
measurement (train/parallel/gradient_exchange.py)."""

SLOW_S = 0.5
"""An exchange that takes longer is halved by bf16."""


def wire_for(fp32_s: float, wanted: str = "auto") -> str:
    """The wire that is set; what `auto` becomes follows from the seconds that an exchange takes in fp32."""
    if wanted != "auto":
        return wanted
    return "bf16" if fp32_s > SLOW_S else "fp32"
