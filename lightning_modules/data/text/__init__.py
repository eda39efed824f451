"""From text to pieces: tokenizers, and sentences encoded by them."""
