"""Result buffers: which messages of the window are, or may yet be, the top-k lists of subscriptions."""
