"""Fine-tuning on text."""
