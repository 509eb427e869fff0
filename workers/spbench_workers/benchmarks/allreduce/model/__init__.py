"""The alpha-beta model: predicted times of collectives, by the links that the job has measured."""
