"""GPUs before a launch: what hosts have, what is amiss with it, and what cases need of it."""
