"""The Container Runtime Interface (CRI v1): our own small client and the wire format. The one home of grpcio."""
