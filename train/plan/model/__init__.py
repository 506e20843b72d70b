"""What a model is: which name means which, its shape, and the memory that it takes."""
