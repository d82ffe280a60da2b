"""Watch a real language-model inference engine at work."""
