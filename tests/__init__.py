"""Tests in four rings: pure, sockets (real gRPC over real sockets), real_node (a real containerd), budgets."""
