"""Where text comes from, how it is cut into tokens, and how it gets into batches."""
