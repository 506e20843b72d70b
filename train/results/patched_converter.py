"""Runs the converter of llama.cpp as it is, but for three orders of ours. In a process of its own, whose packages are
the converter's (gguf.py starts it).

    python -P patched_converter.py '{"pre": "gpt-2", "end_of_turn": 2, "quant": "q4_0"}' FOLDER --outfile FILE …
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any, TypedDict

import gguf

IN_AND_OUT = ("token_embd.weight", "output.weight")
"""Words in and words out: llama.cpp gives them more bits than the rest, as they lose most."""


def name_words(pre: str) -> None:
    """The converter knows how a tokenizer cuts words by a hash, where others have published it, and takes one that
    was copied from a gguf for SentencePiece. llama.cpp aborts when it is asked by such a file."""
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    TextModel._set_vocab_sentencepiece = TextModel._set_vocab_gpt2


def end_turns_with(token: int) -> None:
    """An answer ends there as well, and not at the tokenizer's own end alone."""
    add = gguf.SpecialVocab.add_to_gguf

    def add_both(self: Any, writer: Any, quiet: bool = False) -> None:
        add(self, writer, quiet)
        writer.add_eot_token_id(token)

    gguf.SpecialVocab.add_to_gguf = add_both


class Orders(TypedDict):
    pre: str
    end_of_turn: int | None
    quant: str


def hold_in_4_bit() -> None:
    """What the converter would hold in 16 bit: all but norms and the like."""
    add, name_type = gguf.GGUFWriter.add_tensor, gguf.GGUFWriter.add_file_type
    kinds = gguf.GGMLQuantizationType

    def add_smaller(self: Any, name: str, tensor: Any, raw_shape: Any = None, raw_dtype: Any = None) -> None:
        if raw_dtype == kinds.F16:
            kind = kinds.Q8_0 if name in IN_AND_OUT else kinds.Q4_0
            with suppress(gguf.QuantError):  # its rows are no multiple of 32: it stays
                tensor, raw_dtype = gguf.quants.quantize(tensor, kind), kind
        add(self, name, tensor, raw_shape, raw_dtype)

    gguf.GGUFWriter.add_tensor = add_smaller
    gguf.GGUFWriter.add_file_type = lambda self, _: name_type(self, gguf.LlamaFileType.MOSTLY_Q4_0)


def main(orders: Orders, words: list[str]) -> None:
    import convert_hf_to_gguf

    if orders["pre"]:
        name_words(orders["pre"])
    if orders["end_of_turn"] is not None:
        end_turns_with(orders["end_of_turn"])
    if orders["quant"] == "q4_0":
        hold_in_4_bit()
    sys.argv = [convert_hf_to_gguf.__file__, *words]
    convert_hf_to_gguf.main()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
