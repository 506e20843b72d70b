"""Settings that may lead to a file of this computer. Read at each command's start, so it imports nothing."""

PLACES = ("model", "dataset", "recipe", "tokenizer", "rewards", "adapter", "chat_template")
"""What they lead to is sent to the nodes."""
TOKENIZERS = ("bpe", "bytes", "chars")
"""Tokenizers that are no file."""
