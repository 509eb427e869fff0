"""What an allreduce should take, from the links that the job has measured."""
