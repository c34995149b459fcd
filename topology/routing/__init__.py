"""Routing: groupers choose the tasks that get a tuple, by Java's hash codes where Storm does."""
