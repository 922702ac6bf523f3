"""One validated configuration from our file, the kubelet's and the command line."""
