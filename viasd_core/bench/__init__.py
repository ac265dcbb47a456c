"""Paired, interleaved measurement of decoding methods, against each other and Hugging Face `generate`."""
