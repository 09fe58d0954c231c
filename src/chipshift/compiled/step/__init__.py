"""A plain JAX training step for a decoder and a sharding plan, to be read as much as compiled."""
