"""Storm's UI: its REST API, and web pages on it. What runs a topology, and what it computes, does not matter here."""
