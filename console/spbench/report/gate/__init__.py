"""What a comparison of two runs would find at the noise that was recorded."""
