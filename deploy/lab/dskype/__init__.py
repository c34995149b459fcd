"""DSkype: the distribution mechanisms of the journal paper, compared in simulations and on Spark."""
