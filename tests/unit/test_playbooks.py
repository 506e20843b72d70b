"""What every playbook of ours has."""

from pathlib import Path

import pytest
import yaml

PLAYBOOKS = sorted((Path(__file__).parents[2] / "playbooks").glob("[a-z]*.yml"))


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_programs_on_the_nodes_are_asked_in_english(playbook: Path) -> None:
    """What they answer is read. LANGUAGE, which an installer in another language sets, is stronger than C.UTF-8."""
    for play in yaml.safe_load(playbook.read_text()):
        assert play["environment"] == {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}, play["name"]
