"""Everything that makes a node for a test. Take the first one of this list
that has what the test needs.

* `bare_runtime`: an embedded CRI runtime behind its socket and one client; no kubelet, no small
  disk. For the runtime's own rules.
* `full_runtime`, `full_server`: the drill's embedded runtime with what only tests need: calls that
  make pods, the rules of CRI-O and of older versions (`dialects`), leases and streams, faults
  with names, counts of calls (`faults`), wrong answers (`distortions`). The nodes here have these.
* `small_node`: small real filesystems, a kubelet's directories, an embedded runtime
  behind its socket, and the product assembled for it. For everything that the product
  does on a node; needs no root.
* `real_node`: a real containerd on a loop-mounted filesystem, with a pretended kubelet. For what
  only a real runtime shows; needs root.
* `crowded_node`: a `real_node` with images and pods of every state on it.
* `own_root`: not a node: a root directory of its own, for what an operator does as root on a fresh
  machine: installing, say. Beside any of them; needs root.
* `later`: not a node either, but a clock for one: of a time when what has gone
  just now counts as settled.
"""
