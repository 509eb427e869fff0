"""Keys of a store: their memory, buckets, merge devices and shards on servers."""
