"""Models over many ranks: training and inference of known and imported networks, and profiles."""
