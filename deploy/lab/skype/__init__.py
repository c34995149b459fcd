"""Skype: the indexes, buffers and the window that it proposes and is compared with, and its experiments."""
