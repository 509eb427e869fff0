"""Inference that says how good it is: accuracy, nearness to fp32, and answers under a load."""
