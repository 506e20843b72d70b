"""`tiny`: a random Llama of one million parameters with a byte-level BPE of 1 024 tokens, built offline in two seconds.

It is for tests and first runs: it learns nothing worth reading, and runs anywhere.
"""

import pydoc_data.topics
from pathlib import Path

VOCABULARY = 1024
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def build(folder: Path) -> None:
    """Write model and tokenizer into `folder`, the same bytes on every machine with the same locked packages."""
    folder.mkdir(parents=True, exist_ok=True)
    _build_tokenizer(folder)
    _build_model(folder)


def _build_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # 700 KB of English about the Python language ship with Python itself.
    tokenizer.train_from_iterator(list(pydoc_data.topics.topics.values()), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **SPECIAL)
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def _build_model(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
