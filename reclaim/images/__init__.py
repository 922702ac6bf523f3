"""Images: which are removed and in which order, and what is remembered about them."""
