"""Distributors and routers that the A-Grid is measured against (Tornado, section 5). They are exact, and not meant for use."""
