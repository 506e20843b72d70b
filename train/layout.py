"""What controller and nodes agree on without asking: the cluster's folder on a node, and the ports of runs.

The roles' defaults give a person the same values to change.
"""

HOME = "~/ai-cluster"
BASE_MODELS, RAW_DATA, ROWS, REFERENCES = "models/base", "data/raw", "data/processed", "data/reference"
"""Folders below HOME; a run's folders are in runlog/paths.py."""
TOKENIZERS = "models/tokenizers"
ADAPTERS = "models/adapters"
"""Adapters that runs have begun with."""
TOKENIZER_FILES = (
    "tokenizer*", "*.jinja", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "config.json",
)  # fmt: skip
"""The files of a model of which the tokenizer alone is wanted; transformers reads its kind in config.json."""
EXTRA_PACKAGES = "extra"
"""Environments that some recipes need beside the nodes' own, one a locked set."""
HEARTBEAT_PORT = 29400
QUEUE_PORT = 29405
"""Where the nodes tell each other what they know of the queue, whatever runs there."""
GROUP_PORTS = (29410, 29489)
"""The ports of groups of processes: another one for each generation."""
PORTS = (29400, 29899)
"""All that the nodes open to each other."""
PORTS_IN_USE = (29400, 29893)
"""The ports that a run uses, from the heartbeat's to the last probe's."""
