"""Ring 2: fakes and real small filesystems behind real unix sockets speaking real gRPC."""
