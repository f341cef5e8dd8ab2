"""The output channels by task. A new channel is one file like `derive.linear` and one entry here.

A channel states its loss and label as functions of the normalised pre-activations u and derives what
the potential needs: `steps` ends in the averaged Moreau envelope, train and test loss; `directions`
counts the independent pre-activations that the loss sees.
"""

from derive.linear import LinearChannel
from derive.softmax import SoftmaxChannel

__all__ = ["TASKS", "Channel"]

Channel = LinearChannel | SoftmaxChannel
TASKS: dict[str, type[LinearChannel] | type[SoftmaxChannel]] = {
    LinearChannel.task: LinearChannel,
    **dict.fromkeys(SoftmaxChannel.tasks, SoftmaxChannel),
}
