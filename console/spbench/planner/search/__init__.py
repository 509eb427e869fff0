"""Mode ``best``: the search for the plan with the shortest step."""
