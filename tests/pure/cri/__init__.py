"""Pure tests of cri."""
