"""What a person may set: those of every run, those of each recipe, and the check of both."""
