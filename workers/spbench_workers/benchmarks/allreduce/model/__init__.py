"""Alpha-beta model: predicted times of collectives from the job's measured links."""
