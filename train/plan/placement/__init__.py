"""Where the weights are while they train: held, streamed, or cut over machines as a pipeline; and whether that fits."""
