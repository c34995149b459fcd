"""The distribution methods of the Skype and DSkype papers: hashing, location, keyword, prefix and their two-level hybrids."""
