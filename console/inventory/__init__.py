"""The machines that a person wrote down: read, and checked before anything is connected to."""
