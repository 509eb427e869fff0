"""Networks of the user's own, imported by torch.fx: traced, cut into layers."""
