"""What a launch decides, what blocks it, and what is written down of it."""
