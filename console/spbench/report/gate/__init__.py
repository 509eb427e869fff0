"""The gate tested: differences that a comparison would find at the noise that was recorded."""
