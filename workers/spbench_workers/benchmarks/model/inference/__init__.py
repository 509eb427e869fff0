"""Quality of inference: accuracy, agreement with fp32, and latency under a load."""
