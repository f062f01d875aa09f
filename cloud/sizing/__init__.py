"""What a model needs of a GPU and what the GPU can give it at most: arithmetic over a model's own description."""
