"""Keys of a store: where each lies in memory, in buckets, on devices and on servers."""
