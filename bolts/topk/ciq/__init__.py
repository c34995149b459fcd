"""The subscription index of Chen, Cong, Cao and Tan as Skype describes it: coverings of cells, read document at a time."""
