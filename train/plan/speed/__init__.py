"""How fast machines are together: the rows of each, and what a step takes."""
