"""What shows that nobody uses an object. Who audits what this program may remove begins here.

A runtime removes whatever it is told to, and nobody can ask it whether something is about to be
used. So an object goes only if all of this shows that nothing needs it, and unknown keeps it.

| Module | Whether |
|---|---|
| `states` | a pod exists, has terminated, or is gone, and its directories are trusted to say so |
| `directories`, `pod_list` | what the kubelet says: its directories, and its list of pods |
| `references` | an image is in use: what containers, sandboxes and specs name means it |
| `lists` | lists still count for an image that is asked about now |
| `starts` | a pod, or a container of one, is being made right now, or has begun since a list |

How an image goes: lists show it unused (`references`); the list of containers is so young that it
counts (`lists`); no pod is being made (`starts`); right before the call, the directories are as
they were right before that list (`lists.Evidence.holds`). How what is left of a pod goes:
directories that account for what runs do not have the pod (`states.distrust_of`, `PodStates.gone`),
nor has the kubelet's list; and so it is once more right before the call (`KubeletPods.gone`).

Nothing here knows a policy or a pass: which unused objects go, and in which order, is
decided in `reclaim.images` and `reclaim.containers.plan`; who asks the runtime for its lists
is `reclaim.cri.inventory`.
"""
