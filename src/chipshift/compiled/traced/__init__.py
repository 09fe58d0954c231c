"""A traced PyTorch module cut over a mesh: what tp can cut, the constraints, what they send."""
