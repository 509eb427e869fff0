"""The Hosts page: hostfiles, facts about each host, and measured links."""
