"""What outlives every process of a topology: its snapshots and journals, in a store chosen by URL, and the files that describe it. Later versions read what is written here."""
