"""Links between ranks. Only the module `device_messages` imports torch."""
