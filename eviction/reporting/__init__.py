"""Records, JSON, sentences and tables about the node and its passes, and the log. Decides nothing."""
