"""Base models with their adapters: where they lie, how they are loaded, what of them is trained."""
