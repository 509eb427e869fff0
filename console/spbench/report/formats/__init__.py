"""A recorded run in the formats of other programs: test servers, monitoring, a browser."""
