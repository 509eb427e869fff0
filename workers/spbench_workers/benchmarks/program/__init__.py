"""Programs of others in the ranks' place: started, read as they print, ended with the rank."""
