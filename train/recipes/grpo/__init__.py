"""Training by rewards: the model answers, functions score, the better answer becomes likelier."""
