"""What a finished run is, by its files."""

from argparse import Namespace

import pytest

from train.errors import BadInput
from train.results import finished_run


def test_a_whole_model_is_not_called_a_broken_adapter(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(BadInput, match=r"a whole model \(method=full\), no adapter\nfolder: .*\n.*motley ask asks it"):
        finished_run.require(Namespace(adapter=tmp_path), "adapter")
    (tmp_path / "adapter_config.json").touch()
    finished_run.require(Namespace(adapter=tmp_path), "adapter")
