"""What the namespace tests do in a process of their own, which prints one JSON object.

    python -m tests.sockets.namespace_child STORY DIRECTORY [UID]

With UID, root becomes that user and group first, without other groups and capabilities. It does so here, with every
module imported, and not in its parent: that user may not be allowed to read this interpreter.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, enter_private_mounts, mount_tmpfs
from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.runtime.server import EmbeddedServer
from tests.sockets.cri_calls import CriCalls, run_container, run_pod

_PR_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)

MIB = 1 << 20


def enter(_: str) -> dict[str, Any]:
    """Enter, and say as whom."""
    return {**dataclasses.asdict(enter_private_mounts()), "user": os.geteuid()}


def enter_beside_a_thread(_: str) -> dict[str, Any]:
    """Enter while a second thread runs."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        return dataclasses.asdict(enter_private_mounts())
    finally:
        done.set()
        thread.join()


def locked_down(_: str) -> dict[str, Any]:
    """Enter where neither way is allowed: without capabilities, in a user namespace that may have no children."""
    outer = os.readlink("/proc/self/ns/user")
    first = enter_private_mounts()
    if first.how == "root":
        raise SystemExit("this story must not be told as root: the limit it sets would be the machine's own")
    if first.available and os.readlink("/proc/self/ns/user") != outer:
        with open("/proc/sys/user/max_user_namespaces", "w", encoding="utf-8") as limit:  # of this namespace
            limit.write("0")
        drop_all_capabilities()
        return dataclasses.asdict(enter_private_mounts())
    return dataclasses.asdict(first)  # the machine is locked down already


def mount(directory: str) -> dict[str, Any]:
    """Mount a tmpfs of 1 MiB and 16 inodes, and use up its inodes."""
    _enter()
    mount_tmpfs(directory, MIB, 16)
    made = 0
    try:
        for number in range(100):
            os.mkdir(os.path.join(directory, str(number)))
            made += 1
    except OSError:
        pass
    free = os.statvfs(directory)
    return {"bytes": free.f_frsize * free.f_blocks, "inodes": free.f_files, "made": made, "inodes_free": free.f_ffree}


def mount_wrongly(directory: str) -> dict[str, Any]:
    """Ask for mounts that cannot be."""
    _enter()
    said = []
    for path, size_bytes, inodes in ((f"{directory}/absent", MIB, 16), (directory, 0, 16), (directory, MIB, 1)):
        try:
            mount_tmpfs(path, size_bytes, inodes)
        except EmbeddedNodeError as error:
            said.append(str(error))
    return {"said": said}


def mount_and_wait(directory: str) -> dict[str, Any]:
    """Mount, say so, and wait for the end."""
    _enter()
    mount_tmpfs(directory, MIB, 16)
    with open(os.path.join(directory, "file"), "wb") as file:
        file.write(b"x")
    sys.stdout.write(json.dumps({"files": os.listdir(directory)}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    return {}


def full(directory: str) -> dict[str, Any]:
    """Fill a filesystem of 8 MiB and 64 inodes to the last byte and the last inode; then remove over the socket."""
    _enter()
    disk, sockets = os.path.join(directory, "disk"), os.path.join(directory, "sockets")
    os.mkdir(disk)
    os.mkdir(sockets)
    mount_tmpfs(disk, 8 * MIB, 64)
    runtime = EmbeddedRuntime(os.path.join(disk, "images"))
    runtime.add_image([runtime.sandbox_image], [LayerSpec("pause", 4096)])
    image_id = runtime.add_image(["registry.example/app:1"], [LayerSpec("app", 2 * MIB, 4)])
    story: dict[str, Any] = {}

    def look(moment: str) -> None:
        seen = os.statvfs(disk)
        story[moment] = {"bytes_free": seen.f_bavail * seen.f_frsize, "inodes_free": seen.f_favail}

    with EmbeddedServer(runtime, os.path.join(sockets, "cri.sock")) as server, CriCalls(server.target) as calls:
        sandbox_id = run_pod(calls, "web")
        container_id = run_container(calls, sandbox_id, "web", "registry.example/app:1")
        look("started")
        runtime.write_to_container(container_id, 0, files=1000)
        look("no inodes")
        story["created at 0 inodes"] = calls.error(
            "CreateContainer", pod_sandbox_id=sandbox_id, config={"image": {"image": "registry.example/app:1"}}
        )[1]
        calls.call("RemoveContainer", container_id=container_id)
        look("container removed")
        container_id = run_container(calls, sandbox_id, "web", "registry.example/app:1")
        story["written"] = runtime.write_to_container(container_id, 100 * MIB)
        look("no bytes")
        try:
            runtime.add_image(["registry.example/large:1"], [LayerSpec("large", MIB, 8)])
        except EmbeddedNodeError as error:
            story["pulled at 0 bytes"] = str(error)
        look("no bytes after a failed pull")
        calls.call("RemoveImage", image={"image": image_id})
        look("image removed under its container")
        calls.call("RemoveContainer", container_id=container_id)
        look("all removed")
    return story


def become(user: int) -> None:
    """Be that user and group and nothing else, as after `setpriv` and an exec."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # A change of user without an exec gives /proc/self to root; an exec would have given it back.
    if _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _enter() -> None:
    entered = enter_private_mounts()
    if not entered.available:
        raise SystemExit(f"no private mounts: {entered.reason}")


def drop_all_capabilities(but: int = 0) -> None:
    """Be who one is, and nothing more: what root can do beyond that is gone. `but`: bits below 32 to keep."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if _libc.capset(header, (ctypes.c_uint32 * 6)(but, but)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


STORIES: dict[str, Callable[[str], dict[str, Any]]] = {
    story.__name__: story
    for story in (enter, enter_beside_a_thread, locked_down, mount, mount_wrongly, mount_and_wait, full)
}

if __name__ == "__main__":
    if len(sys.argv) > 3:
        become(int(sys.argv[3]))
    sys.stdout.write(json.dumps(STORIES[sys.argv[1]](sys.argv[2])))
