"""DSkype on the world's places, live; and the word count over their names."""
