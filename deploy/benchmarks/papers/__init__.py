"""The experiments of the papers, repeated: ``dskype bench skype`` and ``dskype bench distribution``."""
