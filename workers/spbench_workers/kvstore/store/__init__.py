"""The stores: on devices, on servers, by allreduce."""
