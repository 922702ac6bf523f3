"""Images: which go and in which order, how one is removed, and what is remembered of them."""
