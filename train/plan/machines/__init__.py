"""What a launch finds of the machines, and which of their versions must agree."""
