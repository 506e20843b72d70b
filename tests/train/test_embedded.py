"""The model that comes as a GGUF file: how often that is read."""

import gguf
import pytest

from train.models.embedded import read_once


def test_a_file_is_read_once_and_only_while_it_is_converted(monkeypatch):
    read = []
    for name in ("GGUFReader", "get_tensor_name_map"):
        monkeypatch.setattr(gguf, name, lambda *which: read.append(which) or object())
    own = gguf.GGUFReader, gguf.get_tensor_name_map
    with read_once():
        assert gguf.GGUFReader("a") is gguf.GGUFReader("a")
        assert gguf.GGUFReader("a") is not gguf.GGUFReader("b")
        assert gguf.get_tensor_name_map("llama", 30) is gguf.get_tensor_name_map("llama", 30)
    assert read == [("a",), ("b",), ("llama", 30)]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == own
    with pytest.raises(ZeroDivisionError), read_once():
        raise ZeroDivisionError
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == own
