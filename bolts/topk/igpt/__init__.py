"""The subscription index of Skype (section 5): a quadtree with inverted files, individual and group pruning."""
