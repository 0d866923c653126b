"""What other schedulers have, in the words of a jobs file: text in, entries and notes out."""
