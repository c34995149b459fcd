"""Which tasks get a tuple: groupers, and Java's hash codes that they follow."""
