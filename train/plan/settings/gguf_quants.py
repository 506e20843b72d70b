"""The forms of a gguf: how many bits its weights get. Standard library alone: the command line lists them."""

QUANTS = ("q8_0", "q4_0", "q4_k_m", "f16", "bf16", "f32")
DEFAULT_QUANT = "q8_0"
