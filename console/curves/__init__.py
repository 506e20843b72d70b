"""A run's curves where others look: TensorBoard, trackio, Weights & Biases, MLflow."""
