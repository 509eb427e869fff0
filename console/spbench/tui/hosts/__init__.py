"""The Hosts page: hostfiles, what each host has, and what was measured between them."""
