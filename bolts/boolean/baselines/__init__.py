"""Boolean indexes of the literature, which the default is measured against."""
