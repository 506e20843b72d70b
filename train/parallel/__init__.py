"""How a step's gradients come about over unequal processes."""
