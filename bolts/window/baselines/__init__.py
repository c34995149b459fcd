"""Message windows from the literature, against which the default is measured."""
