"""From the keys of each family's config to a ``Model``, one module a group of families."""
