"""The page *Try it*: its scripts, its style and its HTML, and what writes it with a model of your own."""
