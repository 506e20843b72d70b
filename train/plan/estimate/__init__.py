"""What a run will take: a pipeline played, ways compared, sizes to choose from."""
