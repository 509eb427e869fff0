"""How ranks reduce together: a module for each family, a function for each algorithm."""
