"""More of transformers' architectures, from small configs with random weights."""
