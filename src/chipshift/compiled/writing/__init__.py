"""The built-in step as one file that holds what its job needs and no more."""
