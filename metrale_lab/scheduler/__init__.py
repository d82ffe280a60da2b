"""Requests in, ticks through the model, tokens out."""
