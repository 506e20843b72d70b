"""The loop and what stands around it: set-up, checkpoint, resume, consistency, shutdown."""
