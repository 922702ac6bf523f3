"""Ring sockets: fakes and real small filesystems behind real unix sockets that speak gRPC."""
