"""Result buffers: the messages that are in the top-k lists of subscriptions, or may come to be."""
