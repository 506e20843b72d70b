"""Training by preferences: of two answers the better one becomes likelier."""
